"""`make bench-spark`: Spark with gnomon's format and with its own Kafka connector, on the same topics."""
