"""The disk of a node: group commits, the disk space that is allocated ahead of LMDB, and the data directory."""
