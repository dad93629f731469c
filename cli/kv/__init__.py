"""Commands on tables, topics that are read by key."""
