"""gnomon: a Kafka-compatible log broker on ledgers, in Python on Trio."""

__version__ = "0.1.0"
