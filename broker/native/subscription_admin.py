"""Lists, describes, moves and deletes the subscriptions of the partitions that this broker leads.

The native methods and the admin API call these functions once they have checked the permissions. Each function opens
the partition if it is not open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from gnomon.broker.native.arguments import checked
from gnomon.broker.native.connection import Host, Lane
from gnomon.broker.native.hosts import Hosts
from gnomon.broker.partition.stretches import bytes_from, stretches
from gnomon.broker.retention.backlog_size import age_seconds, held_back, shown_stretch
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.subscription import Subscription
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import InvalidCall, NoSuchSubscription, NotLeader, SubscriptionTaken
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds, RecordsThread
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock

NAMES_MAX = 1000
"""Subscriptions that one answer describes."""
DESCRIBED_PER_TURN = 10_000
"""Runs of acknowledged records that are looked at in one turn, some 3 ms."""
SUBSCRIPTION_WEIGHT = 20
"""Describing a subscription without runs costs as much as so many of them."""

LaneSubscription: TypeAlias = Subscription[Lane]
Allowed: TypeAlias = Callable[[str], bool]
"""Whether the caller may see the subscription of this name."""


class SubscriptionPage(NamedTuple):
    """Some subscriptions of one partition, in order of name."""

    rows: dict[str, dict[str, object]]
    """The subscriptions that the caller may see, by name."""
    next: str | None
    """The name after which the next page begins; None if there is none."""


class SubscriptionAdmin:
    """The subscriptions of one broker, for those who operate them."""

    def __init__(
        self, hosts: Hosts, topics: Topics, storage: Storage, node_id: int, thread: RecordsThread, clock: Clock
    ) -> None:
        """Long batches are read in `thread` to find a time."""
        self._hosts = hosts
        self._topics = topics
        self._storage = storage
        self._node_id = node_id
        self._thread = thread
        self._clock = clock

    async def page(self, name: str, index: int, after: str, count: int, allowed: Allowed) -> SubscriptionPage:
        """At most `count` subscriptions of a partition whose names follow `after`.

        Raises:
            InvalidCall: `count` is not between 1 and NAMES_MAX.
            KafkaError, NativeError, MetadataError, LedgerError, SubscriptionsError, WorldError: see `Hosts.host`.
        """
        if not 0 < count <= NAMES_MAX:
            raise InvalidCall(f"ask for 1 to {NAMES_MAX} subscriptions at a time, not for {count}")
        host = await self._hosts.host(name, index)
        names = host.dispatcher.names_after(after, count)
        rows = {each: row async for each, row in self._rows(host, names, allowed)}
        return SubscriptionPage(rows, names[-1] if len(names) == count else None)

    async def stats(self, name: str, index: int, names: list[str], allowed: Allowed) -> dict[str, dict[str, object]]:
        """Those of the named subscriptions of a partition that exist, or all of them if none is named.

        Raises:
            InvalidCall: there are more than NAMES_MAX.
            KafkaError, NativeError, MetadataError, LedgerError, SubscriptionsError, WorldError: see `Hosts.host`.
        """
        host = await self._hosts.host(name, index)
        subscriptions = host.dispatcher.subscriptions
        wanted = names or list(subscriptions)
        if len(wanted) > NAMES_MAX:
            raise InvalidCall(f"name at most {NAMES_MAX} subscriptions at a time; there are {len(subscriptions)}")
        return {each: row async for each, row in self._rows(host, wanted, allowed)}

    async def _rows(
        self, host: Host, names: Iterable[str], allowed: Allowed
    ) -> AsyncIterator[tuple[str, dict[str, object]]]:
        found = host.dispatcher.subscriptions

        def weight(name: str) -> int:
            known = found.get(name)
            return SUBSCRIPTION_WEIGHT + (0 if known is None else known.cursor.ranges_count)

        async for each in paced(names, DESCRIBED_PER_TURN, self._clock, weight):
            if each in found and allowed(each):
                yield each, _row(host, found[each])

    async def describe(self, name: str, index: int, subscriber: str) -> dict[str, object]:
        """The state of one subscription in one partition.

        Returns:
            As `stats`; and the broker, the end of the log, the bytes and the age of the backlog, the records that it
            holds back from retention, and the id and address of each consumer.

        Raises:
            NoSuchSubscription: the partition has none of this name.
            KafkaError, NativeError, MetadataError, LedgerError, SubscriptionsError, WorldError: see `Hosts.host`.
        """
        host = await self._hosts.host(name, index)
        topic = self._topics.find(name)
        source = topic if topic.source is None else self._topics.image.source_of(topic) or topic
        partition, log = host.partition, _log(host)
        _subscription(host, subscriber)  # the bookies of a shadow are not asked for the size without need
        last = await shown_stretch(partition, log, self._storage.entries)
        subscription = _subscription(host, subscriber)
        offset = subscription.cursor.mark_delete
        seconds = await age_seconds(partition, log, offset, self._clock)
        settings = self._topics.settings_of(source)
        held = held_back(partition, log, settings, offset, last.size_bytes, self._clock.wall_ms())
        return {
            **_row(host, subscription),
            "broker": self._node_id,
            "end": host.dispatcher.end,
            "backlog_bytes": 0 if offset >= log.high_watermark else bytes_from(stretches(partition, last), offset),
            "backlog_seconds": seconds,
            "held_records": held.records,
            "held_bytes": held.size_bytes,
            "attached": [[each.client, each.channel.address] for each in subscription.consumers],
        }

    async def seek(self, name: str, index: int, subscriber: str, where: str, to: list[Any]) -> Offset:
        """Moves a subscription in one partition, for all of its consumers; returns the offset where it continues.

        Args:
            where: `earliest`, `latest`, `offset`, `id` or `time`; the last three take one argument, `to`.

        Raises:
            NoSuchSubscription: the partition has none of this name.
            InvalidCall: the place has another form.
            KafkaError, NativeError, MetadataError, LedgerError, SubscriptionsError, WorldError: see `Hosts.host`; or
                whether the subscription was moved is unknown.
        """
        host = await self._hosts.host(name, index)
        subscription = _subscription(host, subscriber)
        offset = await self._offset(host, where, to)
        await host.seek(subscription, offset)
        log = host.partition.log
        return offset if log is None else max(offset, log.start_offset)

    async def _offset(self, host: Host, where: str, to: list[Any]) -> Offset:
        """The offset that a seek asks for."""
        log = _log(host)
        if where == "earliest":
            return log.start_offset
        if where == "latest":
            return log.high_watermark
        if where == "offset":
            (offset,) = checked(to, int)
            return Offset(min(max(offset, log.start_offset), log.high_watermark))
        if where == "id":
            try:
                return await host.positions.offset_of(Dlsn.decode(to))
            except ValueError as error:
                raise InvalidCall(str(error)) from error
        if where == "time":
            (timestamp_ms,) = checked(to, int)
            found = await host.partition.offset_for_timestamp(timestamp_ms, self._thread)
            return log.high_watermark if found is None else found[0]
        raise InvalidCall(f"seek to 'earliest', 'latest', 'offset', 'id' or 'time', not {where!r}")

    async def delete(self, name: str, index: int, subscriber: str, client: str, really: bool) -> None:
        """Deletes a subscription in one partition, if it has no consumers but that of `client`.

        Args:
            client: the id of the caller's consumer; empty for a caller without one.
            really: False only asks whether it could be deleted.

        Raises:
            NoSuchSubscription: the partition has none of this name.
            SubscriptionTaken: it has other consumers.
            KafkaError, NativeError, MetadataError, LedgerError, SubscriptionsError, WorldError: see `Hosts.host`; or
                whether the subscription was deleted is unknown.
        """
        host = await self._hosts.host(name, index)
        subscription = _subscription(host, subscriber)
        if any(consumer.client != client for consumer in subscription.consumers):
            others = "other consumers" if client else "consumers"
            raise SubscriptionTaken(f"subscription {subscriber!r} has {others}: close them first")
        if really:
            await host.delete(subscription)


def _subscription(host: Host, name: str) -> LaneSubscription:
    subscription = host.dispatcher.subscriptions.get(name)
    if subscription is None:
        raise NoSuchSubscription(f"there is no subscription {name!r}")
    return subscription


def _log(host: Host) -> LogBounds:
    log = host.partition.log
    if log is None:
        raise NotLeader("the partition has just moved to another broker")
    return log


def _row(host: Host, subscription: LaneSubscription) -> dict[str, object]:
    consumers = subscription.consumers
    return {
        "type": subscription.kind.value if consumers else None,
        "consumers": len(consumers),
        "offset": subscription.cursor.mark_delete,
        "acknowledged_ahead": subscription.cursor.ranges_count,
        "backlog": subscription.backlog(host.dispatcher.end),
    }
