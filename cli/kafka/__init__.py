"""Commands that are Kafka clients of a broker: topics, groups and records."""
