"""Writes rows to topics once: tasks stage them, the log of a writer decides, a driver applies the decision."""
