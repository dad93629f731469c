"""Formats of the values of records: from the values of a record batch to columns of a table."""
