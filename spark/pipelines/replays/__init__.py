"""Replays of a pipeline: a range of its topics that is read again, and dead letters."""
