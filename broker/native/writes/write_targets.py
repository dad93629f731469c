"""The partitions that native clients write to, and the errors of their appends."""

from __future__ import annotations

from typing import Final

from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.partition.partition import Partition
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import (
    BatchEarly,
    InvalidCall,
    InvalidRecords,
    NativeError,
    NoSuchTopic,
    NotLeader,
    NotTaken,
    TooLarge,
    Unavailable,
)
from gnomon.log.topic import Topic
from gnomon.wire.kafka.errors import ErrorCode

_NOT_HERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
"""Another broker leads the partition, or the topic is new and not known here yet."""
_ERRORS: Final[dict[ErrorCode, type[NativeError]]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeader,
    ErrorCode.KAFKA_STORAGE_ERROR: Unavailable,
    ErrorCode.NOT_ENOUGH_REPLICAS: Unavailable,
    ErrorCode.NETWORK_EXCEPTION: Unavailable,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: BatchEarly,
    ErrorCode.INVALID_PRODUCER_EPOCH: BatchEarly,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NoSuchTopic,
    ErrorCode.MESSAGE_TOO_LARGE: TooLarge,
}


class WriteTargets:
    """Finds the partitions."""

    def __init__(self, topics: Topics, routes: Routes) -> None:
        self._topics = topics
        self._routes = routes

    def check_topic(self, name: str, topic_id: str) -> Topic | None:
        """The topic of a name, if it is known here; checks that it is the one that the client looked up.

        Raises:
            NoSuchTopic: it was deleted, and created again.
        """
        found = self._topics.image.get(name)
        if found is not None and found.id.hex != topic_id:
            raise NoSuchTopic(f"topic '{name}' is not the one with the id {topic_id:.40}: look it up again")
        return found

    def partition(self, name: str, index: int) -> Partition:
        """The partition to write to.

        Raises:
            NativeError: this broker does not write to it.
        """
        try:
            return self._routes.to_produce(name, index)
        except KafkaError as error:
            if error.code in _NOT_HERE:
                raise NotTaken(str(error)) from error
            raise InvalidCall(str(error)) from error


def append_failure(code: ErrorCode, text: str) -> NativeError:
    """The error for an append that was refused for another reason than its terms."""
    return _ERRORS.get(code, InvalidRecords)(text)
