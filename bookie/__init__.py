"""The storage node (entries in LMDB, fencing, garbage) and its client (ledger writer, reader, recovery)."""
