"""Counters beside events: counts the records of a partition by their values in a table, each record once.

    gnomon topic create visits --partitions 1
    gnomon kv create counters
    python counted_events.py 127.0.0.1:9092 127.0.0.1:6650 visits 0 counters

The counters and the position, the offset of the next record, are written in one transaction that compares the position.
So the program may be killed at any moment, and started twice: no record is counted twice or left out. All keys of a
transaction lie in one partition, so the table has one.
"""

from __future__ import annotations

import sys
from collections import Counter

from confluent_kafka import Consumer, KafkaException, TopicPartition

import gnomon

RECORDS_AT_ONCE = 500
"""A transaction has at most 1,000 comparisons and operations."""


def count_events(brokers: str, address: str, topic: str, partition: int, table: str) -> int:
    """Counts the records that the partition has now; returns the number of those that this call has counted."""
    events = Consumer({"bootstrap.servers": brokers, "group.id": "none", "auto.offset.reset": "error"})
    _, end = events.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    key = b"position/%s/%d" % (topic.encode(), partition)
    counted, read_up_to = 0, -1
    with gnomon.connect_blocking(address) as client:
        counters = client.table(table)
        while True:
            entry = counters.get(key)
            stored = None if entry is None else entry.value
            position = int(stored or b"0")
            if position >= end:
                return counted
            if position != read_up_to:  # the first round, or another process has counted some records
                events.assign([TopicPartition(topic, partition, position)])
                read_up_to = position
            records = events.consume(RECORDS_AT_ONCE, timeout=1)
            if not records:
                continue
            if failed := [record.error() for record in records if record.error()]:
                raise KafkaException(failed[0])
            read_up_to = records[-1].offset() + 1
            numbers = Counter(record.value() or b"" for record in records)
            done = counters.txn(
                compare=[counters.value(key) == stored],
                then=[
                    gnomon.PutKey(key, b"%d" % read_up_to),
                    *(gnomon.IncrementKey(b"count/" + value, number) for value, number in numbers.items()),
                ],
            )
            counted += len(records) if done.succeeded else 0


if __name__ == "__main__":
    print(count_events(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5]), "records counted")
