"""Clients of storms that write on conditions, and the judges of their histories."""
