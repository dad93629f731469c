"""Turns the rows of a task into record batches for partitions of target topics.

1. The rows of one partition keep their order.
2. A row goes to the partition of its column `partition`. Without one it goes to that of its key, as Kafka's producers
   choose it, and without a key to the same partition as all such rows of the task.
3. A row that the broker would refuse is refused here, with its topic and the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.batches import EncodedBatch, Numbers, encode
from gnomon.spark.partitioner import partitions_of
from gnomon.spark.writing.target import RowRefused, Target
from gnomon.wire.kafka.compression import Codec

BATCH_BYTES: Final = 64 << 10
LARGE_BATCH_BYTES: Final = 256 << 10
_BATCHES: Final = 4
"""The rows of a partition that are encoded together make at least so many batches, if these have BATCH_BYTES."""
COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns of rows, with the types that each may have, as Spark names them."""

Partitions = npt.NDArray[np.int32]


class UnknownColumn(ValueError):
    """A column that rows cannot have, or of another type; the text names it."""


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Checks the columns of rows.

    Args:
        types: Spark's names of their types.
        topic: the topic of all rows, None if a column has to name it.

    Raises:
        UnknownColumn: see there.
    """
    for name, found in types.items():
        expected = COLUMN_TYPES.get(name)
        if expected is None:
            raise UnknownColumn(f"column {name!r}: there are {', '.join(COLUMN_TYPES)}")
        if found not in expected:
            raise UnknownColumn(f"column {name!r} has the type {found}: expected {' or '.join(expected)}")
    if "value" not in types:
        raise UnknownColumn("there is no column 'value'")
    if topic is None and "topic" not in types:
        raise UnknownColumn("neither the option topic nor a column 'topic' names the topic of the rows")


class RowEncoder:
    """The encoder of one task attempt.

    Args:
        topic: the topic of all rows, None if a column names it.
        task: the number of the task, which gives rows without a key their partition.
        batch_bytes: the most bytes of a batch before compression; None for `usual_batch_bytes`.
    """

    def __init__(self, topic: str | None, task: int, *, batch_bytes: int | None, compression: Codec) -> None:
        self._topic, self._task = topic, task
        self._batch_bytes, self._compression = batch_bytes, compression

    def topics_of(self, rows: pa.Table) -> list[str]:
        """The topics of these rows.

        Raises:
            RowRefused: a row has none.
        """
        if self._topic is not None:
            return [self._topic]
        names = pc.unique(rows["topic"]).to_pylist()
        if None in names:
            raise RowRefused("a row has null in its column 'topic', and the option topic is not given")
        return sorted(names)

    def encode(
        self, rows: pa.Table, targets: Mapping[str, Target], now_ms: int
    ) -> list[tuple[TopicPartition, EncodedBatch]]:
        """The batches of some rows, in order for each partition.

        Args:
            rows: columns of COLUMN_TYPES.
            targets: the topics that `topics_of` names.
            now_ms: the timestamp of rows that have none.

        Raises:
            RowRefused: see invariant 3.
        """
        found = []
        for topic in self.topics_of(rows):
            part = rows if self._topic is not None else rows.filter(pc.equal(rows["topic"], topic))
            found += self._encode(part.combine_chunks(), targets[topic], now_ms)
        return found

    def _encode(self, rows: pa.Table, target: Target, now_ms: int) -> list[tuple[TopicPartition, EncodedBatch]]:
        keys, values = _binary(rows, "key"), _binary(rows, "value")
        headers = _column(rows, "headers") if "headers" in rows.column_names else None
        if target.compacted and keys.null_count:
            raise RowRefused(f"topic {target.name!r} is compacted: a row has no key")
        times = self._times(rows, target, now_ms)
        partitions = self._partitions(rows, keys, target)
        order = np.argsort(partitions, kind="stable")
        numbers, firsts = np.unique(partitions[order], return_index=True)
        found = []
        for number, group in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            taken = pa.array(group)
            batch_bytes = self._batch_bytes or usual_batch_bytes(rows.nbytes * len(group) // len(order))
            batches = encode(
                keys.take(taken),
                values.take(taken),
                times[group],
                None if headers is None else headers.take(taken),
                batch_bytes=min(batch_bytes, target.batch_bytes_max),
                compression=self._compression,
            )
            for batch in batches:
                _check_size(batch, target)
                found.append((TopicPartition(target.name, number), batch))
        return found

    def _times(self, rows: pa.Table, target: Target, now_ms: int) -> Numbers:
        if "timestamp" not in rows.column_names:
            return np.full(rows.num_rows, now_ms, np.int64)
        given = _column(rows, "timestamp").cast(pa.int64()).fill_null(now_ms * 1000)
        times: Numbers = given.to_numpy(zero_copy_only=False) // 1000
        if target.past_ms_max is None or target.future_ms_max is None:
            return times
        earliest, latest = max(0, now_ms - target.past_ms_max), now_ms + target.future_ms_max
        wrong = times[(times < earliest) | (times > latest)]
        if len(wrong):
            raise RowRefused(
                f"topic {target.name!r} takes timestamps from {earliest} to {latest} ms since 1970, not {wrong[0]}"
            )
        return times

    def _partitions(self, rows: pa.Table, keys: pa.Array, target: Target) -> Partitions:
        found: Partitions = np.full(len(keys), self._task % target.partitions, np.int32)
        keyed = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        found[keyed] = partitions_of(keys.take(pa.array(keyed)), target.partitions)
        if "partition" not in rows.column_names:
            return found
        given = _column(rows, "partition")
        named = np.flatnonzero(given.is_valid().to_numpy(zero_copy_only=False))
        numbers = given.take(pa.array(named)).to_numpy(zero_copy_only=False)
        wrong = numbers[(numbers < 0) | (numbers >= target.partitions)]
        if len(wrong):
            raise RowRefused(f"topic {target.name!r} has the partitions 0 to {target.partitions - 1}: not {wrong[0]}")
        found[named] = numbers
        return found


def usual_batch_bytes(rows_bytes: int) -> int:
    """The most bytes of a batch of a partition whose rows have so many bytes together.

    A leader has five batches of a producer at a time, and syncs them together: larger batches wait for fewer syncs.
    """
    return min(max(rows_bytes // _BATCHES, BATCH_BYTES), LARGE_BATCH_BYTES)


def _check_size(batch: EncodedBatch, target: Target) -> None:
    if len(batch.data) > target.batch_bytes_max:
        raise RowRefused(
            f"topic {target.name!r} takes batches of up to {target.batch_bytes_max} bytes (max.message.bytes): a row"
            f" alone has {len(batch.data)}"
        )


def _binary(rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.binary())
    return _column(rows, name).cast(pa.binary())


def _column(rows: pa.Table, name: str) -> pa.Array:
    """A column of a table in one chunk."""
    column = rows[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
