"""Bytes only: Kafka's protocol, record batches and internal frames. Pure: no trio, no clock, no disk."""
