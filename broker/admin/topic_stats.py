"""What a broker knows of a topic: leaders, offsets, and how far its shadows are behind.

Nothing is opened and nobody is asked for it: what this broker does not know is null, and the partition's leader, which
is named, may know it.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gnomon.broker.admin.names import full_name
from gnomon.broker.admin.shadow_topics import shadows_of
from gnomon.broker.admin.topic_path import TOPIC_PATH, topic_at
from gnomon.broker.broker import Broker
from gnomon.broker.leadership import NOBODY
from gnomon.broker.topics import Topic


class TopicStats:
    """What one broker's admin API tells of topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

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
        log = self._broker.partitions.log(topic, index)
        return {
            **self._place(topic, index),
            "startOffset": None if log is None else log.start_offset,
            "highWatermark": None if log is None else log.high_watermark,
        }

    def _told(self, shadow: Topic, index: int) -> dict[str, Any]:
        told = self._broker.replication.stats(shadow, index)
        last = None if told is None or told.last_entry is None else [told.last_segment, told.last_entry]
        return {
            **self._place(shadow, index),
            "connected": None if told is None else told.connected,
            "backlogEntries": None if told is None else told.backlog_entries,
            "backlogBytes": None if told is None else told.backlog_bytes,
            "backlogSeconds": None if told is None else told.backlog_seconds,
            "entriesPerSecond": None if told is None else told.entries_per_second,
            "recordsPerSecond": None if told is None else told.records_per_second,
            "bytesPerSecond": None if told is None else told.bytes_per_second,
            "lastId": None if last is None else dict(zip(("segment", "entry"), last, strict=True)),
        }

    def _place(self, topic: Topic, index: int) -> dict[str, Any]:
        leader = self._broker.leader(topic, index)
        return {"partition": index, "leader": None if leader == NOBODY else leader}
