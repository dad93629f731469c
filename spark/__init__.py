"""Reads topics into Spark, and writes to topics from Spark."""
