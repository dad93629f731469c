"""Guards of the APIs that ask for an operation on the cluster alone."""

from __future__ import annotations

from functools import partial
from typing import Any

from gnomon.broker.authorization.operation import CLUSTER, DENIED, Operation, ResourceType
from gnomon.broker.kafka.guards.guard import Guards, Question
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.messages.acls import AclCreationResult, DeleteAclsFilterResult
from gnomon.wire.kafka.messages.log_dirs import AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult

CLUSTER_DENIED = DENIED[ResourceType.CLUSTER]
CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""The operations in the bit field of an answer (KIP-430)."""


def cluster_operations(question: Question) -> int:
    """The allowed operations on the cluster, as a bit field; 0 for a session that may not describe the cluster."""
    if not question.allows(Operation.DESCRIBE):
        return 0
    return question.operations(CLUSTER, CLUSTER_OPERATIONS)


def _describe_cluster(question: Question) -> None:
    if question.message.include_cluster_authorized_operations:
        operations = cluster_operations(question)

        def amend(response: Any) -> None:
            response.cluster_authorized_operations = operations

        question.request.amend(amend)


def _whole(operation: Operation, question: Question) -> ProtocolMessage | None:
    """One error code for the whole request."""
    return None if question.allows(operation) else question.answer(error_code=CLUSTER_DENIED)


def _each(items: str, result: type[Any], answers: str, question: Question) -> ProtocolMessage | None:
    """One error code for each item of the request."""
    if question.allows(Operation.ALTER):
        return None
    return question.answer(**{answers: [result(error_code=CLUSTER_DENIED)] * len(getattr(question.message, items))})


def _alter_log_dirs(question: Question) -> ProtocolMessage | None:
    if question.allows(Operation.ALTER):
        return None
    return question.answer(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=CLUSTER_DENIED)
                    for index in topic.partitions
                ],
            )
            for directory in question.message.dirs
            for topic in directory.topics
        ]
    )


_describe = partial(_whole, Operation.DESCRIBE)
_alter = partial(_whole, Operation.ALTER)

CLUSTER_GUARDS: Guards = {
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_ACLS: _describe,
    ApiKey.CREATE_ACLS: partial(_each, "creations", AclCreationResult, "results"),
    ApiKey.DELETE_ACLS: partial(_each, "filters", DeleteAclsFilterResult, "filter_results"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe,
    ApiKey.ELECT_LEADERS: _alter,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _describe,
}
