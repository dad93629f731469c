"""What a broker knows of a topic: leaders, offsets, and how far its shadows are behind.

Nothing is opened and nobody is asked for it: what this broker does not know is null, and the partition's leader, which
is named, may know it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gnomon.broker.admin.names import full_name
from gnomon.broker.admin.shadow_topics import shadows_of
from gnomon.broker.admin.topic_path import TOPIC_PATH, topic_at
from gnomon.broker.broker import Broker
from gnomon.broker.leadership import NOBODY
from gnomon.broker.topics import Topic


class Replication(NamedTuple):
    """How one partition of a topic is told to one of its shadows."""

    connected: bool
    """Whether the shadow's leader listens."""
    backlog_entries: int
    """How many entries it was not told of yet."""
    entries_per_second: float
    last_segment: int
    """The base offset of the segment of the last entry that it was told of."""
    last_entry: int


def unknown_replication(shadow: Topic, index: int) -> Replication | None:
    """Nothing tells shadows of entries: each finds them by itself."""
    return None


class TopicStats:
    """What one broker's admin API tells of topics."""

    def __init__(
        self, broker: Broker, replication: Callable[[Topic, int], Replication | None] = unknown_replication
    ) -> None:
        """Args: replication: tells of a shadow and one of its partitions; None where this broker does not know."""
        self._broker = broker
        self._replication = replication

    def routes(self) -> list[Route]:
        """What is served where."""
        return [Route(f"{TOPIC_PATH}/stats", self._stats, methods=["GET"])]

    async def _stats(self, request: Request) -> Response:
        broker = self._broker
        topic = await topic_at(broker, request)
        return JSONResponse(
            {
                "topic": full_name(topic.name),
                "topicId": str(topic.id),
                "source": None if topic.source is None else full_name(topic.source.name),
                "partitions": [self._partition(topic, index) for index in range(topic.partitions)],
                "shadowReplication": {
                    full_name(shadow.name): {
                        "place": shadow.place,
                        "partitions": [self._told(shadow, index) for index in range(shadow.partitions)],
                    }
                    for shadow in shadows_of(broker, topic)
                },
            }
        )

    def _partition(self, topic: Topic, index: int) -> dict[str, Any]:
        log = self._broker.opened_log(topic, index)
        return {
            **self._place(topic, index),
            "startOffset": None if log is None else log.start_offset,
            "highWatermark": None if log is None else log.high_watermark,
        }

    def _told(self, shadow: Topic, index: int) -> dict[str, Any]:
        told = self._replication(shadow, index)
        return {
            **self._place(shadow, index),
            "connected": None if told is None else told.connected,
            "backlogEntries": None if told is None else told.backlog_entries,
            "entriesPerSecond": None if told is None else told.entries_per_second,
            "lastId": None if told is None else {"segment": told.last_segment, "entry": told.last_entry},
        }

    def _place(self, topic: Topic, index: int) -> dict[str, Any]:
        leader = self._broker.leader(topic, index)
        return {"partition": index, "leader": None if leader == NOBODY else leader}
