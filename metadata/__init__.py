"""The metadata service: revisions, compare-and-set, leases and watches."""
