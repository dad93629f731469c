"""Pipelines: a table that follows a topic, described by one file."""
