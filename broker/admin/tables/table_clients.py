"""The client of tables that a broker's REST API is: connections to leaders, and the numbers of its operations.

1. All requests to a partition share one client of it. So a leader remembers one writer for each broker and partition,
   and a write that is sent again has its number.
2. A topic that is created again has other clients: they go by the topic's id.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import Final

import trio

from gnomon.broker.admin.tables.own_leaders import OwnLeaders
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.addresses import Address
from gnomon.client.tables.table_partition import TablePartition
from gnomon.log.tables.operation_id import WRITER_BYTES
from gnomon.log.topic import Topic
from gnomon.runtime.world import World

PARTITIONS_MAX: Final = 10_000
"""Clients that are kept, some 2 KB each; those that were used last."""


class TableClients:
    """The clients of one broker."""

    def __init__(
        self, world: World, topics: Topics, records: TopicRecords, placement: Placement, cluster_id: str
    ) -> None:
        """Nothing is called before `run`."""
        self._world = world
        self._topics = topics
        self._records = records
        self._placement = placement
        self._cluster_id = cluster_id
        self._random = world.random("table-clients")
        self._leaders: OwnLeaders | None = None
        self._partitions: OrderedDict[tuple[uuid.UUID, int], TablePartition] = OrderedDict()

    async def run(self, here: Address, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the connections until it is cancelled; `here` is the address that this broker listens on."""
        async with trio.open_nursery() as nursery:
            parts = (self._world, self._topics, self._records, self._placement, self._cluster_id)
            self._leaders = OwnLeaders(*parts, here, nursery)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._leaders.end()

    @property
    def leaders(self) -> OwnLeaders:
        """The leaders; `run` is running."""
        assert self._leaders is not None, "the clients run before the admin port is served"
        return self._leaders

    def partition(self, topic: Topic, index: int) -> TablePartition:
        """The client of one partition."""
        key = (topic.id, index)
        client = self._partitions.pop(key, None)
        if client is None:
            writer = self._random.randbytes(WRITER_BYTES)
            client = TablePartition(self._world.clock, self.leaders, topic.name, index, writer)
            if len(self._partitions) >= PARTITIONS_MAX:
                self._partitions.popitem(last=False)
        self._partitions[key] = client
        return client
