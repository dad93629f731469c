"""The disk of a node: group commits, the room that LMDB keeps ahead, and the data directory."""
