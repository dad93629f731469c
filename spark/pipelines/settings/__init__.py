"""The file of a pipeline: its settings, and the file of a new one."""
