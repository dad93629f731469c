"""Watches of tables: the changes of keys, as clients are sent them."""
