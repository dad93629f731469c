"""The REST API of tables, the topics that are read by key."""
