"""Replication to shadows: a broker sends its confirmed entries to the brokers of shadows, and stores its progress."""
