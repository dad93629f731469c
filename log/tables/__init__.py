"""Tables as records of a log: the entries of keys, the changes that a batch makes, and the ids of operations."""
