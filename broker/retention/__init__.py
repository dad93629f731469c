"""Retention by time and size, and backlog quotas: which records leave the logs of one broker, and when."""
