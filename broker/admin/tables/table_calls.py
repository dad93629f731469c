"""The calls of the REST API to the leaders of one table's partitions.

1. A write is numbered, and done once however often it is sent (`client/tables/table_partition.py`).
2. A write that is not conditional on absence reads the entry after it for the answer. The numbers that only this read
   knows are left out if it shows another writer's entry, or fails: the write is done all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import trio

from gnomon.broker.admin.tables.key_condition import KeyCondition
from gnomon.broker.admin.tables.merged_page import MergedPage
from gnomon.broker.admin.tables.table_clients import TableClients
from gnomon.broker.admin.tables.table_query import ScanQuery
from gnomon.client.errors import BrokerFailed, CrossPartition, NativeError
from gnomon.client.protocol import SCAN_BYTES_MAX
from gnomon.client.tables.table_partition import TablePartition
from gnomon.log.tables.key_entry import KeyEntry, unpack_entry
from gnomon.log.tables.operations import DeleteKey, GetKey, KeyOperation, PutKey
from gnomon.log.tables.table_status import TableStatus
from gnomon.log.tables.transaction_form import TransactionForm
from gnomon.log.topic import Topic
from gnomon.wire.kafka.partitioner import partition_of

READ_BACK_SECONDS: Final = 1.0
OPERATION_BYTES: Final = 300
"""The memory of an operation and its answer beside their keys, values and entries."""


class WrittenKey(NamedTuple):
    """The outcome of a write of one key."""

    partition: int
    is_done: bool
    """Whether the condition held."""
    revision: int
    """The revision of the write; -1 for the deletion of an absent key, or if the condition did not hold."""
    entry: KeyEntry | None
    """The entry: that which was put, if it is known; or the present one of the key, if the condition did not hold."""


class DoneTransaction(NamedTuple):
    """The outcome of a transaction."""

    partition: int
    succeeded: bool
    operations: Sequence[KeyOperation]
    """The operations of the branch that was done."""
    answers: Sequence[Any]

    @property
    def size_bytes(self) -> int:
        """About the memory of all operations and their answers."""
        read = sum(len(answer) for answer in self.answers if isinstance(answer, bytes))
        written = sum(len(each.value) for each in self.operations if isinstance(each, PutKey))
        return read + written + sum(OPERATION_BYTES + len(each.key) for each in self.operations)


class TableCalls:
    """Calls for one table; every method raises NativeError."""

    def __init__(self, clients: TableClients, topic: Topic) -> None:
        self._clients = clients
        self._topic = topic

    def partitions(self) -> list[TablePartition]:
        """The clients of all partitions."""
        return [self._clients.partition(self._topic, index) for index in range(self._topic.partitions)]

    def _place(self, key: bytes) -> tuple[int, TablePartition]:
        index = partition_of(key, self._topic.partitions)
        return index, self._clients.partition(self._topic, index)

    async def get(self, key: bytes, *, stale: bool) -> tuple[int, int, KeyEntry | None]:
        """The partition of a key, the age of what was read in milliseconds, and the entry; None if it is absent."""
        index, partition = self._place(key)
        age_ms, packed = await partition.get(key, stale=stale)
        return index, age_ms, _entry(packed) if packed else None

    async def write(self, operation: PutKey | DeleteKey, condition: KeyCondition) -> WrittenKey:
        """Puts or deletes a key."""
        key = operation.key
        index, partition = self._place(key)
        comparisons = condition.comparisons(key)
        otherwise = [GetKey(key)] if comparisons else []
        succeeded, answers = await partition.transact(comparisons, [operation], otherwise)
        if not succeeded:
            return WrittenKey(index, False, -1, None if answers[0] is None else _entry(answers[0]))
        revision = int(answers[0])
        entry: KeyEntry | None = None
        if isinstance(operation, PutKey):
            entry = await self._read_back(partition, key, revision)
        return WrittenKey(index, True, revision, entry)

    async def _read_back(self, partition: TablePartition, key: bytes, revision: int) -> KeyEntry | None:
        packed = b""
        with trio.move_on_after(READ_BACK_SECONDS):
            try:
                _, packed = await partition.get(key, stale=True)
            except NativeError:
                return None
        entry = _entry(packed) if packed else None
        return entry if entry is not None and entry.revision == revision else None

    async def transact(self, body: TransactionForm) -> DoneTransaction:
        """Does a transaction whose keys lie in one partition."""
        places = {partition_of(key, self._topic.partitions) for key in body.keys}
        if len(places) > 1:
            raise CrossPartition(
                f"the keys lie in partitions {sorted(places)} of table '{self._topic.name}', not in one"
            )
        index = places.pop()
        client = self._clients.partition(self._topic, index)
        succeeded, answers = await client.transact(body.compare, body.then, body.otherwise)
        operations = body.then if succeeded else body.otherwise
        if len(answers) != len(operations):
            raise BrokerFailed(f"the broker has answered {len(answers)} of {len(operations)} operations")
        return DoneTransaction(index, succeeded, operations, answers)

    async def scan(self, query: ScanQuery) -> MergedPage:
        """A page of entries."""
        page = MergedPage(query.limit, SCAN_BYTES_MAX)
        for index, partition in enumerate(self.partitions()):
            part = await partition.scan(
                query.prefix, query.after, query.limit, keys_only=query.keys_only, stale=query.stale
            )
            page.add(index, part.revision, part.listed, more=part.more, keys_only=query.keys_only)
            if query.stale:
                page.ages_ms[index] = part.age_ms
        return page

    async def statuses(self) -> list[TableStatus]:
        """The state of each partition."""
        return [await partition.status(digest=False) for partition in self.partitions()]

    async def next_revision(self, index: int) -> int:
        """The next revision of a partition, which is as new as this call."""
        client = self._clients.partition(self._topic, index)
        part = await client.scan(b"", None, 1, keys_only=True, stale=False)
        return part.revision + 1


def _entry(packed: bytes) -> KeyEntry:
    try:
        return unpack_entry(packed)
    except (ValueError, TypeError) as error:
        raise BrokerFailed(f"the broker has answered in another form: {error}") from error
