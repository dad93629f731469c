"""The durable subscriptions of all topics, for operators: list, describe, seek and delete, without consuming.

    async with gnomon.connect("127.0.0.1:6650") as client:
        for listed in await client.subscriptions.list("flights"):
            print(listed.name, listed.backlog_records)

1. A call goes to the leaders of the partitions, and has the effect of the same call of a consumer.
2. The first question of a call is not repeated: if no broker answers it, the call fails at once.
3. A list is read in pages; a subscription that is created or deleted meanwhile may be missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, Final, Literal

from gnomon.client.described_subscription import (
    DescribedSubscription,
    IdleSubscription,
    ListedSubscription,
    PartitionPosition,
)
from gnomon.client.errors import InvalidCall, NoSuchSubscription
from gnomon.client.leaders import Leaders

PAGE: Final = 1000
"""Subscriptions of one partition in one answer."""


class Subscriptions:
    """The subscriptions that a native client sees; `NativeClient.subscriptions` is one."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

    async def topics(self) -> list[str]:
        """The names of the topics that have subscriptions, or had some, in order.

        Raises:
            NativeError: no broker answered, or it has refused.
        """
        found: list[str] = []
        while more := await self._leaders.ask_any("subscribed_topics", found[-1] if found else ""):
            found += more
        return found

    async def idle(self) -> list[IdleSubscription]:
        """The subscriptions without consumers that keep records from retention, of all brokers that answer.

        A broker names at most 100, as its last passes of retention have found them; of a partition the slowest one.

        Raises:
            NativeError: no broker answered, or it has refused.
        """
        return [IdleSubscription(**row) for row in await self._leaders.ask_any("idle_subscriptions", True)]

    async def list(self, topic: str, *, after: str = "", count: int | None = None) -> list[ListedSubscription]:
        """The subscriptions of a topic, in order of name.

        Args:
            after: begins after this name.
            count: returns at most this many; None for all of them.

        Raises:
            NoSuchTopic: there is no such topic.
            BrokerUnreachable, Unavailable: a broker did not answer in time.
        """
        found: list[ListedSubscription] = []
        if count is not None and count <= 0:
            raise InvalidCall(f"count is a number from 1 on, not {count}")
        async with aclosing(self._listed(topic, after, PAGE if count is None else min(count, PAGE))) as listed:
            async for each in listed:
                found.append(each)
                if len(found) == count:
                    break
        return found

    async def _listed(self, topic: str, after: str, count: int) -> AsyncGenerator[ListedSubscription]:
        """Merges the pages of all partitions, up to the name that every page reaches."""
        partitions = len(await self._leaders.look_up(topic))
        reached: str | None = after
        while reached is not None:
            rows: dict[str, list[dict[str, Any]]] = {}
            ends = []
            for partition in range(partitions):
                page, end = await self._leaders.ask(topic, partition, "subscriptions", reached, count)
                ends += [] if end is None else [end]
                for name, row in page.items():
                    rows.setdefault(name, []).append(row)
            reached = min(ends, default=None)
            for name in sorted(rows):
                if reached is None or name <= reached:
                    yield _listed(topic, name, rows[name])

    async def describe(self, topic: str, name: str) -> DescribedSubscription:
        """The position, the backlog and the consumers of a subscription, and the records that it holds back.

        Raises:
            NoSuchTopic, NoSuchSubscription: there is no such topic or subscription.
            BrokerUnreachable, Unavailable: a broker did not answer in time.
        """
        found = await self._in_partitions(topic, name, None, "describe_subscription")
        return DescribedSubscription(
            topic, name, tuple(PartitionPosition.of(partition, answer) for partition, answer in found.items())
        )

    async def seek(
        self, topic: str, name: str, to: Literal["earliest", "latest"], *, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """Moves a subscription to the first or beyond the last record; its consumers continue there.

        Args:
            partitions: only these partitions; None for all.

        Returns:
            The offset at which consuming continues, by partition.

        Raises:
            NoSuchTopic, NoSuchSubscription: there is no such topic or subscription.
            NativeError: a broker did not answer in time; whether the subscription was moved is unknown.
        """
        if to not in ("earliest", "latest"):
            raise InvalidCall(f"seek to 'earliest' or 'latest', not {to!r}")
        return await self._in_partitions(topic, name, partitions, "seek", to, [])

    async def seek_to_offset(
        self, topic: str, name: str, offset: int, *, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """`seek` to an offset, or to the nearest one that the partition has."""
        return await self._in_partitions(topic, name, partitions, "seek", "offset", [offset])

    async def seek_to_time(
        self, topic: str, name: str, timestamp_ms: int, *, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """`seek` to the first record at or after a time, milliseconds since 1970, or beyond the last record."""
        return await self._in_partitions(topic, name, partitions, "seek", "time", [timestamp_ms])

    async def delete(self, topic: str, name: str) -> None:
        """Deletes a subscription that has no consumers.

        Raises:
            NoSuchTopic, NoSuchSubscription: there is no such topic or subscription.
            SubscriptionTaken: it has consumers; nothing was deleted, unless they came during the call.
            NativeError: a broker did not answer in time; whether the subscription was deleted is unknown.
        """
        for really in (False, True):
            try:
                await self._in_partitions(topic, name, None, "unsubscribe", "", really)
            except NoSuchSubscription:
                if not really:
                    raise
                # Another caller has deleted it meanwhile.

    async def _in_partitions(
        self, topic: str, name: str, partitions: Collection[int] | None, method: str, *args: Any
    ) -> dict[int, Any]:
        """Calls the leader of each partition; returns the answers of those that have the subscription.

        Raises:
            NoSuchSubscription: none of them has it.
        """
        count = len(await self._leaders.look_up(topic))
        wrong = [each for each in partitions or () if not 0 <= each < count]
        if wrong:
            raise InvalidCall(f"topic '{topic}' has partitions 0 to {count - 1}, not {wrong[0]}")
        found = {}
        for partition in range(count) if partitions is None else sorted(set(partitions)):
            try:
                found[partition] = await self._leaders.ask(topic, partition, method, name, *args)
            except NoSuchSubscription:
                continue
        if not found:
            raise NoSuchSubscription(f"topic '{topic}' has no subscription {name!r}")
        return found


def _listed(topic: str, name: str, rows: list[dict[str, Any]]) -> ListedSubscription:
    return ListedSubscription(
        topic,
        name,
        next((row["type"] for row in rows if row["type"] is not None), None),
        max(row["consumers"] for row in rows),
        sum(row["backlog"] for row in rows),
        len(rows),
    )
