"""The storage node: entries in LMDB, fencing, garbage, and the service that other processes call."""
