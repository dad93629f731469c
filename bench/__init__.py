"""Benchmarks of gnomon, next to its floor and Apache Kafka; `python -m bench --help`. Never part of the tests."""
