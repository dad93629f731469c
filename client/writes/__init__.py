"""Writes of the native client: numbered batches, sent to the leader of a partition in order."""
