"""The broker: serves topics, whose partitions are chains of ledgers, to Kafka's clients and to native clients."""
