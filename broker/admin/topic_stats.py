"""Statistics of a topic: leaders, offsets, and the lag of its shadows.

The other leaders of the topic's partitions are asked over their native ports; the question opens no partition. An
unknown value is null: the partition is not open at its leader, or the leader does not answer. The answer names the
leader in both cases.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gnomon.broker.admin.names import full_name
from gnomon.broker.admin.session import check_topic
from gnomon.broker.admin.shadow_topics import shadows_of
from gnomon.broker.admin.topic_path import TOPIC_PATH, topic_at
from gnomon.broker.authorization.admin_table import AdminRoute
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.native.log_ends import bounds_at
from gnomon.broker.native.peers import SILENT, Peers
from gnomon.broker.placement.leadership import NOBODY, LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.broker.replication.shadow_replication import ShadowReplication
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NativeError
from gnomon.log.topic import Topic


class TopicStats:
    """The statistics of topics in the admin API of one broker."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        placement: Placement,
        partitions: PartitionsInUse,
        replication: ShadowReplication,
        peers: Peers,
        access: Access[AdminRoute],
    ) -> None:
        self._topics = topics
        self._records = records
        self._placement = placement
        self._partitions = partitions
        self._replication = replication
        self._peers = peers
        self._access = access

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route(f"{TOPIC_PATH}/stats", self._stats, methods=["GET"])]

    async def _stats(self, request: Request) -> Response:
        check_topic(self._access, AdminRoute.STATS, request, Operation.DESCRIBE)
        topic = await topic_at(self._records, request)
        shadows = shadows_of(self._topics, topic)
        known = _GatheredStats(topic, self._placement, self._peers)
        known.add_own(self._partitions, self._replication, shadows)
        await known.gather()
        return JSONResponse(
            {
                "topic": full_name(topic.name),
                "topicId": str(topic.id),
                "source": None if topic.source is None else full_name(topic.source.name),
                "partitions": [known.partition(index) for index in range(topic.partitions)],
                "shadowReplication": {
                    full_name(shadow.name): {
                        "place": shadow.place,
                        "partitions": [known.replication(shadow, index) for index in range(shadow.partitions)],
                    }
                    for shadow in shadows_of(self._topics, topic)
                },
            }
        )


class _GatheredStats:
    """The statistics of one topic, gathered from this broker and the other leaders."""

    def __init__(self, topic: Topic, placement: Placement, peers: Peers) -> None:
        self._topic = topic
        self._placement = placement
        self._peers = peers
        self._bounds: dict[int, tuple[int, int]] = {}
        self._replicated: dict[tuple[str, int], dict[str, Any]] = {}

    def add_own(self, partitions: PartitionsInUse, replication: ShadowReplication, shadows: list[Topic]) -> None:
        """Adds the statistics of this broker."""
        self._bounds.update({index: (start, end) for index, start, end in partitions.bounds(self._topic)})
        for shadow in shadows:
            for index in range(shadow.partitions):
                stats = replication.stats(shadow, index)
                if stats is not None:
                    self._replicated[shadow.name, index] = asdict(stats)

    async def gather(self) -> None:
        """Asks the other leaders concurrently."""
        leaders = dict.fromkeys(self._placement.leaders(self._topic, self._topic.partitions))
        async with trio.open_nursery() as nursery:
            for number in leaders:
                peer = self._placement.broker(number)
                if peer is not None and number != self._placement.node_id:
                    nursery.start_soon(self._ask, peer)

    async def _ask(self, peer: LiveBroker) -> None:
        async with self._peers.connected(peer) as client:
            try:
                bounds = await bounds_at(peer, client, self._topic, self._placement)
                rows = await client.call("replication", self._topic.name)
            except (NativeError, *SILENT):
                return
        self._bounds.update(bounds)
        for row in rows:
            if self._leader(self._topic, row["partition"]) == peer.id:
                self._replicated[row["shadow"], row["partition"]] = row

    def partition(self, index: int) -> dict[str, Any]:
        """The offsets of one partition."""
        start, end = self._bounds.get(index, (None, None))
        return {**self._place(self._topic, index), "startOffset": start, "highWatermark": end}

    def replication(self, shadow: Topic, index: int) -> dict[str, Any]:
        """The replication of one partition of one shadow."""
        row = self._replicated.get((shadow.name, index), {})
        last = row.get("last_entry")
        return {
            **self._place(shadow, index),
            "connected": row.get("connected"),
            "backlogEntries": row.get("backlog_entries"),
            "backlogBytes": row.get("backlog_bytes"),
            "backlogSeconds": row.get("backlog_seconds"),
            "entriesPerSecond": row.get("entries_per_second"),
            "recordsPerSecond": row.get("records_per_second"),
            "bytesPerSecond": row.get("bytes_per_second"),
            "lastId": None if last is None else {"segment": row["last_segment"], "entry": last},
        }

    def _place(self, topic: Topic, index: int) -> dict[str, Any]:
        return {"partition": index, "leader": self._leader(topic, index)}

    def _leader(self, topic: Topic, index: int) -> int | None:
        leader = self._placement.leader(topic, index)
        return None if leader == NOBODY else leader
