"""Topics and tables as other programs read them after a run: Kafka's consumers, deltalake and DuckDB."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import deltalake
import duckdb
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from deltalake.exceptions import TableNotFoundError

from gnomon.testing.storms.drivers.numbered_rows import Letter, Record, TableRow
from gnomon.testing.storms.processes.kafka_load import CLIENT

READ_SECONDS = 60.0
ANSWER_SECONDS = 30.0


class TopicReader:
    """A consumer without a group, of topics as they are now."""

    def __init__(self, servers: str) -> None:
        settings = {**CLIENT, "bootstrap.servers": servers, "group.id": "judge", "enable.auto.commit": False}
        self._client = Consumer(settings)

    def close(self) -> None:
        self._client.close()

    def end(self, topic: str, partition: int) -> int:
        """The high watermark."""
        _, end = self._client.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
        return int(end)

    def records(self, topic: str, partition: int) -> list[Record]:
        """The records of a partition, in their order."""
        return [(message.key(), message.value()) for message in self._messages(topic, partition)]

    def letters(self, topic: str) -> list[Letter]:
        """The dead letters in partition 0 of a topic."""
        found = []
        for message in self._messages(topic, 0):
            headers = dict(message.headers())
            place = int(headers["_partition"]), int(headers["_offset"])
            found.append(Letter(*place, message.key(), message.value()))
        return found

    def _messages(self, topic: str, partition: int) -> list[Any]:
        found: list[Any] = []
        end, deadline = self.end(topic, partition), time.monotonic() + READ_SECONDS
        self._client.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while end and (not found or found[-1].offset() < end - 1):
            assert time.monotonic() < deadline, f"{topic}-{partition} cannot be read from {len(found)} to {end}"
            for message in self._client.consume(5000, 0.5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                found.append(message)
        return found


def batches_in(table: Path) -> int:
    """The commits of a Delta table."""
    return len(list((table / "_delta_log").glob("*.json")))


def rows_in(table: Path) -> int:
    """The rows of a Delta table, by its log; 0 if there is none."""
    try:
        return int(deltalake.DeltaTable(table).count())
    except TableNotFoundError:
        return 0


def table_rows(table: Path) -> list[TableRow]:
    """The rows of a Delta table, as DuckDB reads them, by partition and offset of their records."""
    columns = "n, copied_from, text, _partition, _offset"
    return _relation(table).project(columns).order("_partition, _offset, n").fetchall()


def table_letters(table: Path) -> list[Letter]:
    """The dead letters in a Delta table."""
    return [Letter(*row) for row in _relation(table).project('"partition", "offset", "key", "value"').fetchall()]


def _relation(table: Path) -> duckdb.DuckDBPyRelation:
    return duckdb.from_arrow(deltalake.DeltaTable(table).to_pyarrow_dataset())
