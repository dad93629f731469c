"""Kafka's connections: bytes to requests, replies to bytes, and the server that accepts them."""
