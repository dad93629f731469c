"""Storm clients of a table: they put, delete, race, count and read, natively and by Kafka; `table_truth` has the rules.

scenario = LogScenario(..., beside={"table": use_table})
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random

import trio

import gnomon.client.errors as errors
from gnomon.client.client import connect
from gnomon.client.tables.table import Table
from gnomon.log.tables.changes import TTL
from gnomon.log.tables.key_entry import ABSENT, NEVER, KeyEntry
from gnomon.log.tables.operations import CompareOperator, CompareTarget, Comparison, GetKey, PutKey
from gnomon.log.tables.table_entry import TableEntry
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_clients import PRODUCE_VERSION
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.testing.storms.tables.table_trims import BatchReader, trim_table
from gnomon.testing.storms.tables.table_truth import (
    CountedSum,
    LoggedBatch,
    TableRead,
    TableTruth,
    TableWrite,
    WatchedKeys,
    digest_after,
    entries_after,
)
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.records import Record, build_batch

CLIENTS = 3
STEPS_A_SECOND = 4.0
KEYS = (b"", b"a", b"a\0", b"a\xff", b"b")
TTL_SECONDS_MAX = 4.0
LATE_SECONDS = 2.0
"""In the calm an expired key is gone this long after its time to live, by the leader's clock."""
LAST_SECONDS = 15.0
"""A watch in the calm has shown everything after this time, the expiries of the last keys included."""
AWAY = (errors.NoSuchTopic, errors.Retriable, Unreachable)
"""Errors to retry: the broker does not know the new topic yet, or is away."""


async def use_table(cluster: WireCluster, seconds: float, *, name: str = "table", engine: str = "disk") -> None:
    """Clients use a table for `seconds`; then its log and its entries are read and judged.

    Raises:
        AssertionError: `TableTruth` found an error, or the table does not show what its log has.
    """
    await create_topic(cluster, name, {"gnomon.view": "kv", "gnomon.view.engine": engine})
    truth, reader = TableTruth(), BatchReader(cluster, name, f"final-{name}")
    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(_TableClient(cluster, name, f"{name}-{number}", truth).run, seconds)
        looking = _TableClient(cluster, name, f"{name}-reader", truth)
        nursery.start_soon(partial(looking.run, seconds, reads_only=True))
        nursery.start_soon(_read_shadow, cluster, name, truth, seconds)
        nursery.start_soon(trim_table, cluster, _addresses(cluster), name, reader, seconds)
        for number, prefix in enumerate((b"", b"a", truth.counter)):
            nursery.start_soon(_watch, cluster, name, f"{name}-watch-{number}", prefix, truth, seconds)
    await _judge(cluster, name, truth, reader)


async def _watch(cluster: WireCluster, topic: str, name: str, prefix: bytes, truth: TableTruth, seconds: float) -> None:
    """Watches keys for `seconds`, from their present values on and again from a revision on, and then the rest."""
    clock, stream = cluster.world.clock, cluster.world.random(name)
    until = clock.monotonic() + seconds
    async with connect(_addresses(cluster), world=cluster.world, name=name) as client:
        table = client.table(topic)
        first: int | None = None
        while True:
            watched = WatchedKeys(prefix, first)
            truth.watched.append(watched)
            is_last = clock.monotonic() > until
            with trio.move_on_after(LAST_SECONDS if is_last else stream.uniform(0.5, seconds)):
                try:
                    await _follow(table, watched)
                except (*AWAY, errors.Compacted):
                    await clock.sleep(0.5)
                    is_last = False
            if is_last:
                watched.complete = clock.monotonic() - LATE_SECONDS
                return
            shown = [revision for revision, _, _, _ in watched.changes]
            first = stream.choice([None, shown[-1] + 1, shown[0]]) if shown else None


async def _read_shadow(cluster: WireCluster, source: str, truth: TableTruth, seconds: float) -> None:
    """Casts a shadow of a table, and scans it for `seconds`: each page is one that the table once had."""
    clock, stream = cluster.world.clock, cluster.world.random(f"shadow/{source}")
    until = clock.monotonic() + seconds
    shadow = f"{source}-copy"
    await cast_shadow(cluster, source, shadow)
    async with connect(_addresses(cluster), world=cluster.world, name=shadow) as client:
        while clock.monotonic() < until:
            await clock.sleep(stream.expovariate(STEPS_A_SECOND))
            called = clock.monotonic()
            try:
                page = await client.table(shadow).scan(limit=100, stale=True)
            except AWAY:
                continue
            entries = {entry.key: _plain(entry) for entry in page.entries}
            truth.reads.append(TableRead(entries, called, clock.monotonic(), is_stale=True, whole=True))
            cluster.world.logger.debug("table_shadow_reads")


async def _follow(table: Table, watched: WatchedKeys) -> None:
    async with table.watch(watched.prefix, revision=watched.first) as events:
        async for event in events:
            if event.kind == "current":
                assert not watched.changes, "present values come first"
                watched.currents[event.key] = event.revision, event.value or b""
            else:
                watched.changes.append((event.revision, event.key, event.value, event.kind == "expired"))


async def _judge(cluster: WireCluster, name: str, truth: TableTruth, reader: BatchReader) -> None:
    clock = cluster.world.clock
    addresses = _addresses(cluster)
    async with connect(addresses, world=cluster.world, name=f"judge-{name}") as client:
        table = client.table(name)
        await clock.sleep(TTL_SECONDS_MAX)
        probe = await _probed(cluster, table, truth)
        await clock.sleep(LATE_SECONDS)
        while True:
            page = await _until_answered(cluster, table)
            await reader.read_all()
            batches = reader.kept()
            if page == entries_after(batches):
                break
            assert await _until_answered(cluster, table) != page, (
                f"the table shows {page}, and its log leaves other entries"
            )
        await _judge_digest(cluster, table, reader)
    now_ms = next(change.timestamp_ms for batch in batches for change in batch.changes if change.value == probe)
    late = [key for key, entry in page.items() if entry.expires_ms != NEVER and entry.expires_ms < now_ms]
    assert not late, f"the time to live of {late} is over at {now_ms}, and they are there"
    _count(cluster, truth, batches)
    truth.check(batches)


async def _judge_digest(cluster: WireCluster, table: Table, reader: BatchReader) -> None:
    """The digest of the table is that of the entries which its log leaves at the same revision."""
    while True:
        try:
            (status,) = await table.status(digest=True)
            break
        except AWAY:
            await cluster.world.clock.sleep(0.5)
    await reader.read_all()
    expected = digest_after([batch for batch in reader.kept() if batch.base_offset <= status.revision])
    assert (status.keys, status.digest) == expected, f"{status} has another digest than its log leaves: {expected}"


async def _probed(cluster: WireCluster, table: Table, truth: TableTruth) -> bytes:
    """Puts a value, whose record has the time of the leader's clock, which may be wrong."""
    for number in itertools.count():
        value = f"probe {number}".encode()
        write = truth.write([(b"probe", value)], [], cluster.world.clock.monotonic())
        try:
            write.done(await table.put(b"probe", value), cluster.world.clock.monotonic())
        except (*AWAY, errors.OutcomeUnknown):
            await cluster.world.clock.sleep(0.5)
        else:
            return value
    raise AssertionError("never reached")


async def _until_answered(cluster: WireCluster, table: Table) -> Mapping[bytes, KeyEntry]:
    while True:
        try:
            return {entry.key: _plain(entry) for entry in (await table.scan(limit=10_000)).entries}
        except AWAY:
            await cluster.world.clock.sleep(0.5)


def _count(cluster: WireCluster, truth: TableTruth, batches: list[LoggedBatch]) -> None:
    counts = {
        "wins": sum(write.revision is not None and bool(write.comparisons) for write in truth.writes),
        "refusals": sum(write.current is not None for write in truth.writes),
        "reads": len(truth.reads),
        "sums": len(truth.sums),
        "watched": sum(len(watched.changes) for watched in truth.watched),
        "expiries": sum(change.is_expiry for batch in batches for change in batch.changes),
    }
    for counter, count in counts.items():
        if count:
            cluster.world.logger.debug(f"table_{counter}", count=count)


def _addresses(cluster: WireCluster) -> str:
    return ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)


def _plain(entry: TableEntry | None) -> KeyEntry:
    if entry is None:
        return ABSENT
    expires_ms = NEVER if entry.expires_ms is None else entry.expires_ms
    return KeyEntry(entry.value, entry.revision, entry.create_revision, entry.version, expires_ms)


class _TableClient:
    """One client: it does something else in each step, on a few keys that all clients share."""

    def __init__(self, cluster: WireCluster, topic: str, name: str, truth: TableTruth) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._clock = cluster.world.clock
        self._topic = topic
        self._name = name
        self._truth = truth
        self._stream: Random = cluster.world.random(f"table/{name}")
        self._known: dict[bytes, KeyEntry] = {}
        """Entries that this client has seen."""
        self._values = 0

    async def run(self, seconds: float, *, reads_only: bool = False) -> None:
        """Uses the table for `seconds`. A client that only reads stays with a leader that was replaced."""
        until = self._clock.monotonic() + seconds
        steps = [self._get, self._get, self._scan] if reads_only else [self._get, self._get, self._stale, self._scan]
        if not reads_only:
            steps += [self._put, self._put, self._delete, self._set, self._transact, self._count, self._produce]
        async with connect(_addresses(self._cluster), world=self._world, name=self._name) as client:
            table = client.table(self._topic)
            while self._clock.monotonic() < until:
                await self._clock.sleep(self._stream.expovariate(STEPS_A_SECOND))
                async with trio.open_nursery() as nursery:
                    for _ in range(self._stream.choice((1, 1, 1, 2, 3))):
                        nursery.start_soon(self._try, self._stream.choice(steps), table)

    async def _try(self, step: Callable[[Table], Awaitable[None]], table: Table) -> None:
        try:
            await step(table)
        except (*AWAY, errors.OutcomeUnknown):
            await self._clock.sleep(0.5)

    @property
    def _now(self) -> float:
        return self._clock.monotonic()

    def _value(self) -> bytes:
        self._values += 1
        return f"{self._name}/{self._values}".encode()

    def _key(self) -> bytes:
        return self._stream.choice(KEYS)

    def _at(self, key: bytes) -> int | None:
        """The revision that a write expects: the known one, an older one, or none."""
        known = self._known.get(key, ABSENT).revision
        return self._stream.choice([known, known, known - 1 if known > 0 else known, None])

    def _saw(self, key: bytes, entry: KeyEntry) -> None:
        self._known[key] = entry

    def _wrote(self, key: bytes, value: bytes, revision: int) -> None:
        self._saw(key, KeyEntry(value, revision, -1, 1))

    # --- writes -------------------------------------------------------------------------------------------------

    async def _put(self, table: Table) -> None:
        key, value = self._key(), self._value()
        revision = self._at(key)
        ttl_seconds = self._stream.uniform(0.1, TTL_SECONDS_MAX) if self._stream.random() < 0.3 else None
        write = self._truth.write([(key, value)], _at(key, revision), self._now)
        try:
            done = await table.put(key, value, ttl_seconds=ttl_seconds, revision=revision)
        except errors.CompareFailed as refused:
            self._lost(write, key, refused.current)
        else:
            write.done(done, self._now)
            self._wrote(key, value, done)

    async def _delete(self, table: Table) -> None:
        key = self._key()
        revision = self._at(key)
        called = self._now
        write = self._truth.write([(key, None)], _at(key, revision), called)
        try:
            done = await table.delete(key, revision=revision)
        except errors.CompareFailed as refused:
            self._lost(write, key, refused.current)
            return
        if done >= 0:
            write.done(done, self._now)
        else:  # it was absent, and nothing is written
            self._truth.writes.remove(write)
            self._truth.reads.append(TableRead({key: ABSENT}, called, self._now))
        self._saw(key, ABSENT)

    async def _set(self, table: Table) -> None:
        key, value = self._key(), self._value()
        known = self._known.get(key, ABSENT)
        expected = known.value if known.version else None
        comparison = Comparison(key, CompareTarget.VALUE, CompareOperator.EQUAL, expected)
        write = self._truth.write([(key, value)], [comparison], self._now)
        try:
            done = await table.compare_and_set(key, expected=expected, value=value)
        except errors.CompareFailed as refused:
            self._lost(write, key, refused.current)
        else:
            write.done(done, self._now)
            self._wrote(key, value, done)

    def _lost(self, write: TableWrite, key: bytes, current: TableEntry | None) -> None:
        entry = _plain(current)
        write.refused({key: entry}, self._now)
        self._saw(key, entry)

    async def _transact(self, table: Table) -> None:
        """Writes two keys and reads both, if the first is as it was seen; otherwise reads both."""
        one, other = self._stream.sample(KEYS, 2)
        values = self._value(), self._value()
        revision = self._known.get(one, ABSENT).revision
        write = self._truth.write([(one, values[0]), (other, values[1])], _at(one, revision), self._now)
        result = await table.txn(
            compare=[table.revision(one) == revision],
            then=[PutKey(one, values[0]), PutKey(other, values[1])],
            otherwise=[GetKey(one), GetKey(other)],
        )
        if result.succeeded:
            write.done(result.revision - 1, self._now)
            for key, value, at in zip((one, other), values, (result.revision - 1, result.revision), strict=True):
                self._wrote(key, value, at)
            return
        shown = {}
        for key, answer in zip((one, other), result.answers, strict=True):
            assert not isinstance(answer, int), "a read is answered with an entry"
            shown[key] = _plain(answer)
            self._saw(key, shown[key])
        write.refused(shown, self._now)

    async def _count(self, table: Table) -> None:
        called = self._now
        self._truth.increments += 1
        total = await table.increment(self._truth.counter)
        self._truth.sums.append(CountedSum(total, called, self._now))

    async def _produce(self, table: Table) -> None:
        """Writes by Kafka's protocol: values, a time to live, and a deletion."""
        key, value, other = self._key(), self._value(), self._key()
        headers = ((TTL, b"1500"),) if self._stream.random() < 0.3 else ()
        records = [Record(0, 0, key, value, headers), Record(1, 0, other, None)]
        batch = build_batch(records, base_timestamp=self._clock.wall_ms(), compression=self._stream.choice(list(Codec)))
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        write = self._truth.write([(key, value), (other, None)], [], self._now)
        connection = await self._cluster.leader(self._topic, 0)
        try:
            request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
            answer = await connection.request(request, PRODUCE_VERSION, ProduceResponse)
        finally:
            connection.close()
        (produced,) = answer.responses[0].partition_responses
        assert produced.error_code != ErrorCode.INVALID_RECORD, produced.error_message
        if produced.error_code == ErrorCode.NONE:
            write.done(produced.base_offset, self._now)

    # --- reads --------------------------------------------------------------------------------------------------

    async def _get(self, table: Table) -> None:
        await self._read(table, stale=False)

    async def _stale(self, table: Table) -> None:
        await self._read(table, stale=True)

    async def _read(self, table: Table, *, stale: bool) -> None:
        key, called = self._key(), self._now
        entry = _plain(await table.get(key, stale=stale))
        self._truth.reads.append(TableRead({key: entry}, called, self._now, is_stale=stale))
        self._saw(key, entry)

    async def _scan(self, table: Table) -> None:
        called = self._now
        page = await table.scan(limit=100)
        assert page.after is None, "a table of six keys has one page"
        entries = {entry.key: _plain(entry) for entry in page.entries}
        self._truth.reads.append(TableRead(entries, called, self._now, whole=True))
        for key in KEYS:
            self._saw(key, entries.get(key, ABSENT))


def _at(key: bytes, revision: int | None) -> list[Comparison]:
    if revision is None:
        return []
    return [Comparison(key, CompareTarget.REVISION, CompareOperator.EQUAL, revision)]
