"""Kafka's connections: the server that accepts them, and the conversion between bytes, requests and replies."""
