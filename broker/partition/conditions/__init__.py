"""Conditions of writes: the terms of an append, and those in the headers of its records."""
