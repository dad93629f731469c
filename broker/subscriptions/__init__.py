"""Durable subscriptions: their cursors, the delivery of records to consumers, and the stores of positions."""
