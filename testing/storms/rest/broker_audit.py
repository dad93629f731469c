"""Judges the memory of a broker at rest: no client is connected, and all topics of clients are deleted.

1. A container holds at most as many items as when the broker began to serve, or as KEPT allows.
2. No object of the classes in GONE is reached.
3. The accounts are at their sums: request memory, members' memory, the weights of caches and of fetch sessions, the
   counts of connections.
4. Every live timer has a callback that TIMERS explains.
5. Every partition in use is one of a topic that exists, and no append to it is unanswered.

A new attribute that keeps something without a client is a finding, until KEPT names it with its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gnomon.bookie.ledgers.catalog import EntryCache
from gnomon.bookie.ledgers.entry_cache import ENTRY_BYTES, Reading
from gnomon.broker.groups.members_memory import MembersMemory
from gnomon.broker.kafka.connections.connection import KafkaConnection
from gnomon.broker.kafka.connections.connection_limits import ConnectionLimits
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request_memory import RequestMemory
from gnomon.broker.kafka.fetch_sessions import FetchSessions
from gnomon.broker.kafka.long_poll import LongPoll
from gnomon.broker.kafka.poll import Poll
from gnomon.broker.native.connection import Lane, NativeConnection
from gnomon.broker.partition.partition import Partition
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.subscription import AttachedConsumer, Subscription
from gnomon.broker.subscriptions.unpacked import ENTRY_BYTES as UNPACKED_ENTRY_BYTES
from gnomon.broker.subscriptions.unpacked import UnpackedBatches
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.runtime.timers import Timers
from gnomon.testing.storms.kafka.append_checker import kept_appends
from gnomon.testing.storms.rest.finding import Facts, StateFinding
from gnomon.testing.storms.rest.roll import BrokerOnDuty
from gnomon.testing.storms.rest.sizes import Sizes

NO_BOUND: Final = 1 << 62


def _bounded(facts: Facts) -> int:
    """A cache or a memory with a bound of its own, or a table that was reached later than at the start."""
    return NO_BOUND


def _topics(facts: Facts) -> int:
    return len(facts.topics)


def _partitions(facts: Facts) -> int:
    return facts.partitions


def _brokers(facts: Facts) -> int:
    return facts.brokers


def _bookies(facts: Facts) -> int:
    return facts.bookies


KEPT: Final[Mapping[str, Callable[[Facts], int]]] = {
    # what exists: topics (the offsets topic is left), their partitions, brokers, bookies
    "TopicImage._by_id": _topics,
    "TopicImage._by_metric_name": _topics,
    "TopicImage._by_name": _topics,
    "Topics._settings": _topics,
    "Copies._counted": _topics,
    "Placement._leaders": _topics,
    "Placement._leaders[]": lambda facts: 8 * facts.partitions + 8,  # ranks are computed eight at a time
    "PartitionsInUse._partitions": _partitions,
    "HostedMachines._hosted": _partitions,
    "GroupCoordinator._asked_in_vain": _partitions,
    "Brokers._registered": _brokers,
    "Leadership.brokers": _brokers,
    "Leadership.leading": _brokers,
    "RegisteredBookies._alive": _bookies,
    "RegisteredBookies._bookies": _bookies,
    "RegisteredBookies._domains": _bookies,
    "RegisteredBookies._scopes": _bookies,
    # parts of the partitions of the offsets topic
    **dict.fromkeys(
        ("Appender.places", "LedgerRecord.properties", "Partition.segments", "Segment._positions", "Topic.configs"),
        _bounded,
    ),
    # the SN of the last record before a segment
    **dict.fromkeys(("LedgerRecord.properties[]", "LedgerRecord.properties[][]"), _bounded),
    # bounded caches: entries, answers of bookies, batches that were refused
    **dict.fromkeys(("EntryCache._entries", "EntryCache._runs", "ExplicitLacs._acknowledged"), _bounded),
    **dict.fromkeys(
        ("RefusedBatches._awaited", "AwaitedBatches._batches", "AwaitedBatches._ended", "RecentAnswers._answers"),
        _bounded,
    ),
    # cancelled timers, of which few are kept; TIMERS judges the live ones
    "Timers._heap": _bounded,
    # the subjects of the last second in which a peer was refused, and fetch sessions, which outlive their clients
    "LimitedLog._counts": _bounded,
    **dict.fromkeys(("FetchSessions._sessions", "FetchSession.followed"), _bounded),
    # other brokers may be connected to replicate entries
    "ConnectionLimits._counted": _brokers,
    "ConnectionLimits._counts": _brokers,
    # tables that never change
    **dict.fromkeys(
        ("ErrorTable._by_name", "ErrorTable._fields", "HeadLimits._longer", "NativeServer._methods"), _bounded
    ),
}
"""Containers that may hold more than at the start of the broker, and how much."""
GONE: Final = (
    KafkaConnection,
    Exchange,
    Poll,
    LongPoll,
    Reading,
    NativeConnection,
    Lane,
    AttachedConsumer,
    Subscription,
    Dispatcher,
    HostedPartition,
    ShadowPartition,
    HostedTable,
)
"""Classes whose objects belong to clients, or to topics that are deleted."""
TIMERS: Final = ("HostedMachine._due",)
"""The callbacks that run without clients: the regular work of coordinators."""


def audit_broker(broker: BrokerOnDuty, facts: Facts) -> Iterator[StateFinding]:
    """The findings about one broker."""
    now = broker.sizes()
    for place, text in [*_sizes(now, broker.fresh, facts), *_objects(now, facts), *_accounts(now)]:
        yield StateFinding(f"{broker.machine.name}: {place}", f"{broker.machine.name}: {text}")
    metrics = broker.serving.metrics
    if metrics.connections:
        yield StateFinding(
            f"{broker.machine.name}: connections", f"{metrics.connections} connections are counted as open"
        )


def _sizes(now: Sizes, fresh: Sizes, facts: Facts) -> Iterator[StateFinding]:
    for where, count in sorted(now.held.items()):
        allowed = max(fresh.held[where], KEPT[where](facts) if where in KEPT else 0)
        if count > allowed:
            yield StateFinding(where, f"{where} holds {count} items, {allowed} are explained")


def _objects(now: Sizes, facts: Facts) -> Iterator[StateFinding]:
    for kind in GONE:
        if now.found(kind):
            yield StateFinding(kind.__name__, f"{len(now.found(kind))} objects of class {kind.__name__} are reached")
    for partition in now.found(Partition):
        if kept_appends(partition):
            yield StateFinding("appends", f"{kept_appends(partition)} appends to a partition are not answered")


def _accounts(now: Sizes) -> Iterator[StateFinding]:
    """Sums that do not fit, by the account's name."""
    sums: list[tuple[str, int, int]] = []
    for memory in now.found(RequestMemory):
        sums += [
            ("RequestMemory.bytes_used", memory.bytes_used, 0),
            ("RequestMemory.backlog_bytes", memory.backlog_bytes, 0),
            ("RequestMemory.unfinished_bytes", memory.unfinished_bytes, 0),
        ]
    sums += [("MembersMemory.bytes_used", each.bytes_used, 0) for each in now.found(MembersMemory)]
    for cache in now.found(EntryCache):
        kept = [payload for payload in cache._entries.values() if isinstance(payload, memoryview)]
        sums.append(("EntryCache.size_bytes", cache.size_bytes, sum(len(each) + ENTRY_BYTES for each in kept)))
    for unpacked in now.found(UnpackedBatches):
        kept_bytes = sum(len(each) + UNPACKED_ENTRY_BYTES for each in unpacked._kept.values())
        sums.append(("UnpackedBatches._kept_bytes", unpacked._kept_bytes, kept_bytes))
    for sessions in now.found(FetchSessions):
        weight = sum(len(session.followed) for session in sessions._sessions.values())  # no name here is long
        sums.append(("FetchSessions._weight", sessions._weight, weight))
    sums += [
        ("ConnectionLimits._counts", sum(limits._counts.values()), len(limits._counted))
        for limits in now.found(ConnectionLimits)
    ]
    for name, counted, expected in sums:
        if counted != expected:
            yield StateFinding(name, f"{name} is {counted}, the sum is {expected}")
    for timers in now.found(Timers):
        for _, _, timer in timers._heap:
            called = getattr(timer.callback, "__qualname__", None)
            if timer.callback is not None and called not in TIMERS:
                yield StateFinding(f"timer {called}", f"a timer will call {called}")
