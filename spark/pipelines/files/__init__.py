"""Pipelines from files to a topic: each file once, in an order."""
