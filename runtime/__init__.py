"""The world outside a node: clock, sockets, randomness, disk commits, settings, logs and metrics."""
