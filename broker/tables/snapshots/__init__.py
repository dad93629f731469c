"""Snapshots of tables: the entries at one revision, in a sealed ledger that a metadata record names."""
