"""The one directory that this broker keeps its logs in: DescribeLogDirs, AlterReplicaLogDirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.broker.kafka.request import Handler, Request
from gnomon.runtime.world import WorldError
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

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker


UNKNOWN_BYTES = -1


class LogDirHandlers:
    """Answers for one broker: the partitions that it leads, in its data directory.

    A broker of a cluster has none: its log directory is a name, and the size of what is behind it unknown.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {ApiKey.DESCRIBE_LOG_DIRS: self.describe, ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter}

    def _directory(self) -> Path:
        text = self._broker.configs.text("log.dirs")
        assert text is not None, "the broker was not told its directory"
        return Path(text).absolute()

    async def describe(self, request: Request) -> DescribeLogDirsResponse:
        """Sizes of the partitions asked for, as far as they exist, and of the file system (KIP-827)."""
        message: DescribeLogDirsRequest = request.message
        broker, directory = self._broker, self._directory()
        total_bytes = usable_bytes = UNKNOWN_BYTES
        if broker.lease_until is None:
            try:
                space = broker.world.disk.space(directory)
            except WorldError:
                failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory))
                return DescribeLogDirsResponse(results=[failed])
            total_bytes, usable_bytes = space.total_bytes, space.usable_bytes
        asked: dict[str, set[int]] = {}
        for item in message.topics or []:
            asked.setdefault(item.topic, set()).update(item.partitions)
        sizes = await broker.partitions.stored_bytes()
        topics = []
        for topic in broker.image:
            wanted = range(topic.partitions) if message.topics is None else asked.get(topic.name, ())
            described = [
                DescribeLogDirsPartition(partition_index=index, partition_size=sizes.get((topic.id, index), 0))
                for index, leader in enumerate(broker.leaders(topic, topic.partitions))
                if index in wanted and leader == broker.node_id
            ]
            if described:
                topics.append(DescribeLogDirsTopic(name=topic.name, partitions=described))
        only = DescribeLogDirsResult(
            log_dir=str(directory), topics=topics, total_bytes=total_bytes, usable_bytes=usable_bytes
        )
        return DescribeLogDirsResponse(results=[only])

    def alter(self, request: Request) -> AlterReplicaLogDirsResponse:
        """A partition is where it shall be, or the request names a directory that is not this broker's."""
        message: AlterReplicaLogDirsRequest = request.message
        directory = str(self._directory())
        verdicts: dict[str, dict[int, ErrorCode]] = {}
        for target in message.dirs:
            for item in target.topics:
                topic = self._broker.image.get(item.name)
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
