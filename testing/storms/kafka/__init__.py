"""Storms over brokers with Kafka clients."""
