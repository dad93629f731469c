"""The audit of topics: compares every copy of every entry, and the entries with the metadata; changes nothing."""
