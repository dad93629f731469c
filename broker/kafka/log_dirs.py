"""The one directory that this broker keeps its logs in: DescribeLogDirs, AlterReplicaLogDirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock, DiskSpace, WorldError
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_BYTES = -1
PARTITIONS_PER_TURN = 2_000
"""Partitions that are described in one turn of the event loop."""


class LogDirHandlers:
    """Answers for one broker: the partitions that it leads, in its log directory.

    The log directory of a broker that keeps no records itself is a name, and its size is unknown.
    """

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        partitions: PartitionsInUse,
        configs: BrokerConfigs,
        space: Callable[[Path], DiskSpace] | None,
        clock: Clock,
    ) -> None:
        """Answers for the directory in the broker's configs.

        Args:
            space: returns the size of the directory's file system; None if the directory is only a name.
        """
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._configs = configs
        self._space = space
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {ApiKey.DESCRIBE_LOG_DIRS: self.describe, ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter}

    def _directory(self) -> Path:
        text = self._configs.text("log.dirs")
        assert text is not None, "the broker has no directory"
        return Path(text).absolute()

    async def describe(self, request: Request) -> DescribeLogDirsResponse:
        """Sizes of the partitions asked for, as far as they exist, and of the file system (KIP-827)."""
        message: DescribeLogDirsRequest = request.message
        directory = self._directory()
        total_bytes = usable_bytes = UNKNOWN_BYTES
        if self._space is not None:
            try:
                space = self._space(directory)
            except WorldError:
                failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory))
                return DescribeLogDirsResponse(results=[failed])
            total_bytes, usable_bytes = space.total_bytes, space.usable_bytes
        sizes = await self._partitions.stored_bytes()
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        async for topic, index in paced(self._asked(message), PARTITIONS_PER_TURN, self._clock):
            size = sizes.get((topic.id, index), 0)
            described = DescribeLogDirsPartition(partition_index=index, partition_size=size)
            topics.setdefault(topic.name, []).append(described)
        only = DescribeLogDirsResult(
            log_dir=str(directory),
            topics=[DescribeLogDirsTopic(name=name, partitions=some) for name, some in topics.items()],
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )
        return DescribeLogDirsResponse(results=[only])

    def _asked(self, message: DescribeLogDirsRequest) -> Iterator[tuple[Topic, int]]:
        """The partitions that a request asks for and that this broker leads."""
        image, node_id = self._topics.image, self._placement.node_id
        asked: dict[str, set[int] | None]
        if message.topics is None:
            asked = dict.fromkeys(topic.name for topic in image)
        else:
            asked = {}
            for item in message.topics:
                asked[item.topic] = (asked.get(item.topic) or set()) | set(item.partitions)
        for name, indexes in asked.items():
            topic = image.get(name)
            if topic is not None:
                for index, leader in enumerate(self._placement.leaders(topic, topic.partitions)):
                    if leader == node_id and (indexes is None or index in indexes):
                        yield topic, index

    def alter(self, request: Request) -> AlterReplicaLogDirsResponse:
        """Moves nothing: a partition is in this broker's directory already, and any other directory is refused."""
        message: AlterReplicaLogDirsRequest = request.message
        directory = str(self._directory())
        verdicts: dict[str, dict[int, ErrorCode]] = {}
        for target in message.dirs:
            for item in target.topics:
                topic = self._topics.image.get(item.name)
                count = 0 if topic is None else topic.partitions
                for index in item.partitions:
                    code = ErrorCode.NONE if index in range(count) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    code = code if target.path == directory else ErrorCode.LOG_DIR_NOT_FOUND
                    verdicts.setdefault(item.name, {})[index] = code
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=name,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                        for index, code in codes.items()
                    ],
                )
                for name, codes in verdicts.items()
            ]
        )
