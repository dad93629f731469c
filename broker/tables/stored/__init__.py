"""The store of the tables of one broker on its disk: a cache of what their logs and snapshots have."""
