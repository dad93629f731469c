"""Storm clients of tables, and their judge."""
