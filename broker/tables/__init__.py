"""Tables: the newest value of each key of a topic, decided and applied in the order of the log."""
