"""A table of the native client: the newest value of each key of a topic with `gnomon.view=kv`.

    async with gnomon.connect("127.0.0.1:6650") as client:
        settings = client.table("settings")
        revision = await settings.put(b"colour", b"green")
        entry = await settings.get(b"colour")
        await settings.put(b"colour", b"blue", revision=entry.revision)  # CompareFailed if somebody else was first

1. A write has returned once it is durable and every read sees it. It is done once, however often it had to be sent.
2. A read sees every write that was acknowledged to anybody before it was called, unless it is `stale`.
3. A key is in the partition that Kafka's default partitioner chooses, so other clients can write to the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

import trio

from gnomon.client.errors import BrokerFailed, CompareFailed, CrossPartition, InvalidCall
from gnomon.client.leaders import Leaders
from gnomon.client.protocol import SCAN_ENTRIES_MAX
from gnomon.client.tables.compared import Compared
from gnomon.client.tables.export_file import NewExportFile
from gnomon.client.tables.table_export import TableExport, export_table
from gnomon.client.tables.table_import import TableImport, import_table
from gnomon.client.tables.table_partition import TablePartition
from gnomon.client.tables.table_watch import TableWatch, checked_revisions
from gnomon.client.writes.writes import Writes
from gnomon.log.tables.changes import NO_TTL, TTL_MS_MAX
from gnomon.log.tables.key_entry import pack_entry
from gnomon.log.tables.operation_id import WRITER_BYTES
from gnomon.log.tables.operations import (
    OPERATIONS_MAX,
    CompareOperator,
    CompareTarget,
    Comparison,
    DeleteKey,
    GetKey,
    IncrementKey,
    InvalidOperation,
    KeyOperation,
    PutKey,
    check_operand,
    checked_key,
    decode_operations,
    encode_operations,
)
from gnomon.log.tables.table_entry import Page, TableEntry, TxnResult
from gnomon.log.tables.table_status import TableStatus
from gnomon.runtime.world import RandomStream, World
from gnomon.wire.kafka.partitioner import partition_of

ABSENT: Final = -1
"""The revision that a write expects of a key without a value."""


class Table:
    """One table; `NativeClient.table` makes it."""

    def __init__(
        self,
        world: World,
        leaders: Leaders,
        writes: Writes,
        topic: str,
        random: RandomStream,
        nursery: trio.Nursery,
    ) -> None:
        """A table that nothing was asked of; `random` is of this client alone, `nursery` runs the watches."""
        self.topic = topic
        self._world = world
        self._clock = world.clock
        self._leaders = leaders
        self._writes = writes
        self._random = random
        self._nursery = nursery
        self._partitions: list[TablePartition] = []

    # --- writing ------------------------------------------------------------------------------------------------

    async def put(
        self, key: bytes, value: bytes, *, ttl_seconds: float | None = None, revision: int | None = None
    ) -> int:
        """Puts a value, and returns its revision.

        Args:
            ttl_seconds: the key is deleted after this time, by the leader's clock; None for never.
            revision: the key must have this revision, -1 for no value; None if any will do.

        Raises:
            CompareFailed: the key has another revision; nothing was written.
            NotATable, NoSuchTopic, NotAuthorized, InvalidCall, TooLarge: nothing was written.
            BrokerUnreachable, Unavailable: nothing was written.
            OutcomeUnknown: no answer came within 30 s.
        """
        if type(value) is not bytes:
            raise InvalidCall(f"a value is bytes, not {type(value).__name__}")
        operation = PutKey(_key(key), value, _ttl_ms(ttl_seconds))
        return int(await self._written(operation, _at(key, revision)))

    async def delete(self, key: bytes, *, revision: int | None = None) -> int:
        """Deletes a key, and returns the revision of that; -1 if it was absent. Arguments and errors as of `put`."""
        return int(await self._written(DeleteKey(_key(key)), _at(key, revision)))

    async def compare_and_set(
        self, key: bytes, *, expected: bytes | None, value: bytes, ttl_seconds: float | None = None
    ) -> int:
        """Puts a value if the key has the `expected` one (None: no value); returns its revision. Errors as of `put`."""
        comparison = Comparison(_key(key), CompareTarget.VALUE, CompareOperator.EQUAL, expected)
        _checked_comparison(comparison)
        return int(await self._written(PutKey(key, value, _ttl_ms(ttl_seconds)), [comparison]))

    async def increment(self, key: bytes, by: int = 1) -> int:
        """Adds to a value that is a decimal number of 64 bits, 0 if the key is absent; returns the sum.

        Raises:
            InvalidCall: the value is no such number, or the sum does not fit; nothing was written.
            NativeError: as `put`.
        """
        operation = IncrementKey(_key(key), by)
        _check([operation])
        _, total = await self._written(operation, [])
        return int(total)

    async def _written(self, operation: KeyOperation, comparisons: Sequence[Comparison]) -> Any:
        """The answer of one operation on one key; raises CompareFailed if a comparison does not hold."""
        key = operation.key
        index, partition = await self._partition_of(key)
        otherwise = [GetKey(key)] if comparisons else []
        succeeded, answers = await partition.transact(comparisons, [operation], otherwise)
        if succeeded:
            return answers[0]
        current = None if answers[0] is None else _entry(key, answers[0], index)
        found = "is absent" if current is None else f"has revision {current.revision}"
        raise CompareFailed(current, f"{key!r:.80} {found} in table '{self.topic}', which is not what was expected")

    async def txn(
        self,
        *,
        compare: Sequence[Comparison] = (),
        then: Sequence[KeyOperation] = (),
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnResult:
        """Does `then` if all comparisons hold, else `otherwise`; what is written is one batch.

        Args:
            compare: such as `table.value(b"k") == b"v"`.

        Raises:
            CrossPartition: the keys lie in several partitions.
            InvalidCall: a key is written twice, or there are more than 1,000 operations and comparisons.
            NativeError: as `put`.
        """
        for comparison in compare:
            _checked_comparison(comparison)
        _check(then)
        _check(otherwise)
        items = (*compare, *then, *otherwise)
        if not 0 < len(items) <= OPERATIONS_MAX:
            raise InvalidCall(f"a transaction has 1 to {OPERATIONS_MAX} operations and comparisons, not {len(items)}")
        count = len(await self._all())
        places = {partition_of(item.key, count) for item in items}
        if len(places) > 1:
            raise CrossPartition(f"the keys lie in partitions {sorted(places)} of table '{self.topic}', not in one")
        index = places.pop()
        succeeded, answers = await self._partitions[index].transact(compare, then, otherwise)
        return _result(then if succeeded else otherwise, answers, index, succeeded=succeeded)

    # --- comparing ----------------------------------------------------------------------------------------------

    def value(self, key: bytes) -> Compared:
        """The value of a key, for a comparison of `txn`; None is that of an absent key."""
        return Compared(_key(key), CompareTarget.VALUE)

    def version(self, key: bytes) -> Compared:
        """The version of a key, for a comparison of `txn`; 0 for an absent key."""
        return Compared(_key(key), CompareTarget.VERSION)

    def revision(self, key: bytes) -> Compared:
        """The revision of a key, for a comparison of `txn`; -1 for an absent key."""
        return Compared(_key(key), CompareTarget.REVISION)

    def create_revision(self, key: bytes) -> Compared:
        """The create revision of a key, for a comparison of `txn`; -1 for an absent key."""
        return Compared(_key(key), CompareTarget.CREATE_REVISION)

    # --- reading ------------------------------------------------------------------------------------------------

    async def get(self, key: bytes, *, stale: bool = False) -> TableEntry | None:
        """The entry of a key; None if it is absent.

        Args:
            stale: whether an older entry will do, as that of a shadow, or of a broker that was replaced; it costs no
                confirmation. `TableEntry.age_ms` says how old it may be.

        Raises:
            NotATable, NoSuchTopic, NotAuthorized, InvalidCall: the broker refused.
            BrokerUnreachable, Unavailable: no broker could answer within 5 s or 30 s.
        """
        index, partition = await self._partition_of(_key(key))
        age_ms, packed = await partition.get(key, stale=stale)
        if not packed:
            return None
        entry = _entry(key, packed, index)
        return replace(entry, age_ms=age_ms) if stale else entry

    async def scan(
        self,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        limit: int = 1_000,
        keys_only: bool = False,
        stale: bool = False,
    ) -> Page:
        """The entries whose keys begin with a prefix, in the order of their keys.

        Each partition's part of a page is as new as the call. Several pages, or partitions, are not of one instant:
        `Page.revisions` names those that they show.

        Args:
            after: only keys after this one, as `Page.after` of the page before.
            limit: at most so many entries, 1 to 10,000. A page may have fewer, also if more follow (`Page.after`).
        """
        if type(limit) is not int or not 1 <= limit <= SCAN_ENTRIES_MAX:
            raise InvalidCall(f"a scan returns 1 to {SCAN_ENTRIES_MAX} entries at a time, not {limit!r:.40}")
        _key(prefix)
        start = None if after is None else _key(after)
        parts = [
            await partition.scan(prefix, start, limit, keys_only=keys_only, stale=stale)
            for partition in await self._all()
        ]
        entries: list[TableEntry] = []
        ends: list[bytes] = []
        for index, part in enumerate(parts):
            found = [_entry(key, packed, index) for key, packed in _pairs(part.listed, keys_only=keys_only)]
            entries += found
            if part.more:
                ends.append(found[-1].key)
        entries.sort(key=lambda entry: entry.key)
        if ends:
            entries = [entry for entry in entries if entry.key <= min(ends)]
        last = entries[:limit][-1].key if entries and (ends or len(entries) > limit) else None
        ages_ms = {index: part.age_ms for index, part in enumerate(parts)} if stale else {}
        return Page(entries[:limit], last, {index: part.revision for index, part in enumerate(parts)}, ages_ms)

    async def count(self, prefix: bytes = b"", *, stale: bool = False) -> int:
        """The number of keys with a prefix; that of each partition is as new as the call unless `stale` is set."""
        _key(prefix)
        return sum([await partition.count(prefix, stale=stale) for partition in await self._all()])

    # --- operating ----------------------------------------------------------------------------------------------

    async def snapshot(self) -> None:
        """Takes a snapshot of each partition, after which the records up to there need not stay in the log.

        Raises:
            Unavailable: a partition could not take one; the text says why.
            NativeError: as `get`.
        """
        for partition in await self._all():
            await partition.snapshot()

    async def status(self, *, digest: bool = False) -> list[TableStatus]:
        """The state of each partition.

        Args:
            digest: whether to compute the digest of the entries, which reads them all.

        Raises:
            NativeError: as `get`.
        """
        return [await partition.status(digest=digest) for partition in await self._all()]

    # --- files ----------------------------------------------------------------------------------------------------

    async def export_to(self, path: str | PathLike[str], *, overwrite: bool = False) -> TableExport:
        """Writes the state of each partition at one revision to a file, which appears under its name only as a whole.

        A snapshot of each partition is taken for it. A partition whose leader is lost is read again from the next one.

        Args:
            overwrite: whether a file that exists is replaced.

        Raises:
            FileExistsError: the file exists.
            OSError: the file cannot be written.
            NativeError: as `snapshot`.
        """
        file = NewExportFile(Path(path), overwrite=overwrite)
        return await export_table(self._world, self.topic, await self._all(), file)

    async def import_from(self, path: str | PathLike[str]) -> TableImport:
        """Writes the entries of an export into this table, which must be empty; it may have another engine and other
        partitions.

        The whole file is checked before anything is written. Keys whose time to live is over are left out. In the end,
        the table is compared with the file.

        Raises:
            ExportDamaged: the file is not as it was written, or no export; nothing was written.
            TableNotEmpty: the table has keys; nothing was written.
            ImportIncomplete: the table has a part of the file, or other entries than the file.
            OSError: the file cannot be read; nothing was written.
            NativeError: as `put`; nothing was written.
        """
        return await import_table(self._world, self._writes, self.topic, await self._all(), Path(path))

    # --- watching -----------------------------------------------------------------------------------------------

    def watch(
        self,
        prefix: bytes = b"",
        *,
        revision: int | Mapping[int, int] | None = None,
        initial: bool = True,
    ) -> TableWatch:
        """The present values of keys with a prefix, and every change after them; see `TableWatch`.

        Args:
            prefix: of the keys; a whole key watches that key, and those that begin with it.
            revision: the first revision of the changes, instead of the present values; for a table with several
                partitions by partition.
            initial: whether the present values come first.
        """
        _key(prefix)
        return TableWatch(self._clock, prefix, checked_revisions(revision), self._all, self._nursery, initial=initial)

    # --- partitions ---------------------------------------------------------------------------------------------

    async def _partition_of(self, key: bytes) -> tuple[int, TablePartition]:
        partitions = await self._all()
        index = partition_of(key, len(partitions))
        return index, partitions[index]

    async def _all(self) -> list[TablePartition]:
        if not self._partitions:
            count = len(await self._leaders.find(self.topic))
            if not self._partitions:
                self._partitions = [self._partition(index) for index in range(count)]
        return self._partitions

    def _partition(self, index: int) -> TablePartition:
        return TablePartition(self._clock, self._leaders, self.topic, index, self._random.randbytes(WRITER_BYTES))


def _key(key: Any) -> bytes:
    try:
        return checked_key(key)
    except InvalidOperation as error:
        raise InvalidCall(str(error)) from None


def _check(operations: Sequence[KeyOperation]) -> None:
    try:
        decode_operations(encode_operations(operations))
    except InvalidOperation as error:
        raise InvalidCall(str(error)) from None
    except KeyError as error:
        raise InvalidCall(f"an operation is a Put, Delete, Get or Increment, not {error}") from None


def _checked_comparison(comparison: Comparison) -> None:
    if not isinstance(comparison, Comparison):
        raise InvalidCall(f"compare with `table.value(key) == …` and the like, not {comparison!r:.80}")
    try:
        checked_key(comparison.key)
        check_operand(comparison)
    except InvalidOperation as error:
        raise InvalidCall(str(error)) from None


def _at(key: bytes, revision: int | None) -> list[Comparison]:
    if revision is None:
        return []
    if type(revision) is not int or revision < ABSENT:
        raise InvalidCall(f"a revision is a number from 0 on, and -1 for a key without a value, not {revision!r:.40}")
    return [Comparison(key, CompareTarget.REVISION, CompareOperator.EQUAL, revision)]


def _ttl_ms(seconds: float | None) -> int:
    if seconds is None:
        return NO_TTL
    if not isinstance(seconds, int | float) or not 0.001 <= seconds <= TTL_MS_MAX / 1_000:
        raise InvalidCall(f"a time to live is 0.001 to {TTL_MS_MAX // 1_000} seconds, not {seconds!r:.40}")
    return round(seconds * 1_000)


def _entry(key: bytes, packed: bytes, index: int) -> TableEntry:
    try:
        return TableEntry.decode(key, packed, index)
    except (ValueError, TypeError) as error:
        raise BrokerFailed(f"the broker has answered in another form: {error}") from error


def _pairs(listed: list[bytes], *, keys_only: bool) -> list[tuple[bytes, bytes]]:
    if keys_only:
        return [(key, pack_entry(b"", -1, -1, 0, -1)) for key in listed]
    return list(zip(listed[::2], listed[1::2], strict=True))


def _result(operations: Sequence[KeyOperation], answers: list[Any], index: int, *, succeeded: bool) -> TxnResult:
    shown: list[TableEntry | int | None] = []
    revision = -1
    for operation, answer in zip(operations, answers, strict=True):
        if isinstance(operation, GetKey):
            shown.append(None if answer is None else _entry(operation.key, answer, index))
            continue
        written, number = answer if isinstance(operation, IncrementKey) else (answer, answer)
        revision = max(revision, written)
        shown.append(number)
    return TxnResult(succeeded, shown, revision)
