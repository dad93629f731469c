"""Operations and the resources they are done on, by Apache Kafka's names and numbers. Pure.

`AclOperation` and `ResourceType` of Apache Kafka have the same names and codes. CAST is gnomon's own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from gnomon.wire.kafka.errors import ErrorCode


class Operation(IntEnum):
    """The operations that are authorized; the value is Kafka's code."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CAST = 100
    """On a source: to create and to delete its shadows. A reader of a shadow needs READ on the shadow alone."""


class ResourceType(IntEnum):
    """The types of resources; the value is Kafka's code."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """One resource: its type and its name."""

    type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The one resource of its type, by Kafka's name."""

DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for an operation that is not authorized, by the type of the resource."""


def topic(name: str) -> Resource:
    """The resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """The resource of a consumer group, or of a native subscription."""
    return Resource(ResourceType.GROUP, name)
