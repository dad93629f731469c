"""The entries of a table, in memory and in the order of their keys; what an engine does, and images of it."""
