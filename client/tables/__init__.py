"""Tables of the native client: the newest value of each key of a topic."""
