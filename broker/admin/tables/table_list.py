"""The list of tables with their states, which the leaders of their partitions are asked for.

1. A leader that does not answer within ASK_SECONDS costs the numbers of its partitions: they have the reason instead.
2. An answer has at most `limit` tables, and PARTITIONS_MAX partitions unless its only table has more. All leaders
   together have ALL_SECONDS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple

import trio

from gnomon.broker.admin.tables.table_clients import TableClients
from gnomon.broker.admin.tables.table_query import TableListQuery
from gnomon.broker.configs.topic_configs import is_on_disk, is_table
from gnomon.broker.native.peers import ASK_SECONDS, SILENT
from gnomon.broker.placement.leadership import NOBODY
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NativeError
from gnomon.log.tables.table_status import TableStatus
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock

TOPICS_PER_TURN: Final = 5_000
"""Topics that are looked at in one turn, some 2 ms."""
PARTITIONS_MAX: Final = 1_000
CALLS_AT_ONCE: Final = 32
ALL_SECONDS: Final = 10.0


class ListedPartition(NamedTuple):
    """The state of one partition, or the reason why it is not known."""

    leader: int | None
    found: TableStatus | str


class TableList:
    """The tables of a cluster, as one broker lists them."""

    def __init__(self, topics: Topics, placement: Placement, clients: TableClients, clock: Clock) -> None:
        self._topics = topics
        self._placement = placement
        self._clients = clients
        self._clock = clock

    async def page(
        self, query: TableListQuery, visible: Callable[[str], bool]
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Some tables in the order of their names, and the name after which the next page begins.

        Args:
            visible: whether the caller may see the topic of this name.
        """
        names = await self._names(query, visible)
        tables: list[Topic] = []
        room = PARTITIONS_MAX
        for name in names[: query.limit]:
            topic = self._topics.image.get(name)
            if topic is None or not is_table(topic.configs):
                continue
            if tables and topic.partitions > room:
                break
            tables.append(topic)
            room -= topic.partitions
        more = bool(tables) and tables[-1].name != names[-1]
        states = await self._states(tables)
        rows = [self._row(topic, [states[topic.name, index] for index in range(topic.partitions)]) for topic in tables]
        return rows, tables[-1].name if more else None

    async def _names(self, query: TableListQuery, visible: Callable[[str], bool]) -> list[str]:
        """The names of the next tables, one more than the page may have."""
        most = query.limit + 1
        found: list[str] = []
        async for topic in _paced_topics(self._topics, self._clock):
            if topic.name > query.after and is_table(topic.configs) and visible(topic.name):
                found.append(topic.name)
                if len(found) >= 2 * most:
                    found = sorted(found)[:most]
        return sorted(found)[:most]

    async def _states(self, tables: Sequence[Topic]) -> dict[tuple[str, int], ListedPartition]:
        found: dict[tuple[str, int], ListedPartition] = {}
        limiter = trio.CapacityLimiter(CALLS_AT_ONCE)

        async def ask(topic: Topic, index: int) -> None:
            async with limiter:
                found[topic.name, index] = await self._ask(topic, index)

        with trio.move_on_after(ALL_SECONDS):
            async with trio.open_nursery() as nursery:
                for topic in tables:
                    for index in range(topic.partitions):
                        nursery.start_soon(ask, topic, index)
        late = f"the leaders did not answer within {ALL_SECONDS:.0f} s: list fewer tables at once"
        for topic in tables:
            for index in range(topic.partitions):
                found.setdefault((topic.name, index), ListedPartition(self._leader(topic, index), late))
        return found

    async def _ask(self, topic: Topic, index: int) -> ListedPartition:
        leaders, leader = self._clients.leaders, self._leader(topic, index)
        address = leaders.leader(topic, index)
        if address is None:
            return ListedPartition(leader, "the partition has no leader at the moment")
        with trio.move_on_after(ASK_SECONDS):
            try:
                fields = await leaders.connection(address).call("table_status", topic.name, topic.id.hex, index, False)
                return ListedPartition(leader, TableStatus.decode(index, fields))
            except SILENT as error:
                return ListedPartition(leader, f"broker {leader} does not answer: {error}")
            except (NativeError, ValueError) as error:
                return ListedPartition(leader, str(error))
        return ListedPartition(leader, f"broker {leader} does not answer within {ASK_SECONDS:.0f} s")

    def _leader(self, topic: Topic, index: int) -> int | None:
        leader = self._placement.leader(topic, index)
        return None if leader == NOBODY else leader

    def _row(self, topic: Topic, partitions: Sequence[ListedPartition]) -> dict[str, Any]:
        rows = [_partition_row(index, each) for index, each in enumerate(partitions)]
        known = all(row["reason"] is None for row in rows)
        return {
            "table": topic.name,
            "engine": "disk" if is_on_disk(topic.configs) else "memory",
            **{name: sum(row[name] for row in rows) if known else None for name in ("keys", "bytes", "lag")},
            "partitions": rows,
        }


async def _paced_topics(topics: Topics, clock: Clock) -> AsyncIterator[Topic]:
    async for topic in paced(list(topics.image), TOPICS_PER_TURN, clock):
        yield topic


def _partition_row(index: int, listed: ListedPartition) -> dict[str, Any]:
    row: dict[str, Any] = {"partition": index, "leader": listed.leader}
    status = listed.found
    if isinstance(status, str):
        return row | dict.fromkeys(("keys", "bytes", "revision", "snapshot_revision", "lag")) | {"reason": status}
    return row | {
        "keys": status.keys,
        "bytes": status.bytes_used,
        "revision": status.revision,
        "snapshot_revision": status.snapshot_revision,
        "lag": max(status.log_end - (status.revision + 1), 0),
        "reason": None,
    }
