"""The partitions that are in use on one broker, and how a request finds them."""
