"""Bytes only: Kafka's protocol, record batches, internal frames. Pure: no trio, no clock, no disk."""
