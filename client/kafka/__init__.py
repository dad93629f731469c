"""Kafka's protocol as a client speaks it, for programs that encode their record batches themselves."""
