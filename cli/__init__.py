"""The click command `gnomon`."""
