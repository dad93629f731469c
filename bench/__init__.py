"""Benchmarks of gnomon beside its floor and Apache Kafka; `python -m bench --help`. Never part of the tests."""
