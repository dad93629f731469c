"""Benchmarks of gnomon, next to Apache Kafka and a minimal server (`bench.floor`); `python -m bench --help`. Never part
of the tests."""
