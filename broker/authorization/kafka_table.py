"""The operations that each Kafka API asks for, as Apache Kafka's documentation lists them. Pure.

The source is "Operations and Resources on Protocols" in Apache Kafka's security documentation. The rules for
DescribeTopicPartitions, DeleteTopics by id, OffsetFetch of all topics and CreateTopics' configs are from the classes
`KafkaApis` and `ControllerApis` of Kafka 4.0.

A request about several resources of one type is answered in part: a resource that the session may not use has its own
error, or is left out, and the others are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.authorization.rule import RefusalEffect, Rule
from gnomon.wire.kafka.api import ApiKey


def _rules(*rules: tuple[Operation, ResourceType, RefusalEffect]) -> tuple[Rule, ...]:
    return tuple(Rule(*rule) for rule in rules)


_TOPIC, _GROUP, _CLUSTER, _TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_READ_GROUP = (Operation.READ, _GROUP, RefusalEffect.REQUEST)
_ALTER_CONFIGS = _rules(
    (Operation.ALTER_CONFIGS, _CLUSTER, RefusalEffect.ITEM),
    (Operation.ALTER_CONFIGS, _TOPIC, RefusalEffect.ITEM),
    (Operation.ALTER_CONFIGS, _GROUP, RefusalEffect.ITEM),
)

KAFKA_RULES: Final[Mapping[ApiKey, tuple[Rule, ...]]] = {
    ApiKey.PRODUCE: _rules(
        (Operation.WRITE, _TXN, RefusalEffect.REQUEST),
        (Operation.WRITE, _TOPIC, RefusalEffect.ITEM),
    ),
    ApiKey.FETCH: _rules((Operation.READ, _TOPIC, RefusalEffect.ITEM)),
    ApiKey.LIST_OFFSETS: _rules((Operation.DESCRIBE, _TOPIC, RefusalEffect.ITEM)),
    ApiKey.METADATA: _rules(
        (Operation.DESCRIBE, _TOPIC, RefusalEffect.ITEM),
        (Operation.CREATE, _CLUSTER, RefusalEffect.FALLBACK),
        (Operation.CREATE, _TOPIC, RefusalEffect.ITEM),
        (Operation.DESCRIBE, _CLUSTER, RefusalEffect.FIELD),
    ),
    ApiKey.OFFSET_COMMIT: _rules(
        (Operation.READ, _GROUP, RefusalEffect.REQUEST), (Operation.READ, _TOPIC, RefusalEffect.ITEM)
    ),
    ApiKey.OFFSET_FETCH: _rules(
        (Operation.DESCRIBE, _GROUP, RefusalEffect.ITEM), (Operation.DESCRIBE, _TOPIC, RefusalEffect.ITEM)
    ),
    ApiKey.FIND_COORDINATOR: _rules(
        (Operation.DESCRIBE, _GROUP, RefusalEffect.ITEM),
        (Operation.DESCRIBE, _TXN, RefusalEffect.ITEM),
    ),
    ApiKey.JOIN_GROUP: _rules(_READ_GROUP),
    ApiKey.HEARTBEAT: _rules(_READ_GROUP),
    ApiKey.LEAVE_GROUP: _rules(_READ_GROUP),
    ApiKey.SYNC_GROUP: _rules(_READ_GROUP),
    ApiKey.DESCRIBE_GROUPS: _rules((Operation.DESCRIBE, _GROUP, RefusalEffect.ITEM)),
    ApiKey.LIST_GROUPS: _rules(
        (Operation.DESCRIBE, _CLUSTER, RefusalEffect.FALLBACK),
        (Operation.DESCRIBE, _GROUP, RefusalEffect.HIDDEN),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: _rules(
        (Operation.CREATE, _CLUSTER, RefusalEffect.FALLBACK),
        (Operation.CREATE, _TOPIC, RefusalEffect.ITEM),
        (Operation.DESCRIBE_CONFIGS, _TOPIC, RefusalEffect.FIELD),
        (Operation.CAST, _TOPIC, RefusalEffect.ITEM),
    ),
    ApiKey.DELETE_TOPICS: _rules(
        (Operation.DELETE, _CLUSTER, RefusalEffect.FALLBACK),
        (Operation.DESCRIBE, _TOPIC, RefusalEffect.ITEM),
        (Operation.DELETE, _TOPIC, RefusalEffect.ITEM),
        (Operation.CAST, _TOPIC, RefusalEffect.ITEM),
    ),
    ApiKey.DELETE_RECORDS: _rules((Operation.DELETE, _TOPIC, RefusalEffect.ITEM)),
    ApiKey.INIT_PRODUCER_ID: _rules(
        (Operation.WRITE, _TXN, RefusalEffect.REQUEST),
        (Operation.IDEMPOTENT_WRITE, _CLUSTER, RefusalEffect.FALLBACK),
        (Operation.WRITE, _TOPIC, RefusalEffect.REQUEST),  # on any topic
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _rules(
        (Operation.CLUSTER_ACTION, _CLUSTER, RefusalEffect.FALLBACK),
        (Operation.DESCRIBE, _TOPIC, RefusalEffect.ITEM),
    ),
    ApiKey.DESCRIBE_ACLS: _rules((Operation.DESCRIBE, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.CREATE_ACLS: _rules((Operation.ALTER, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.DELETE_ACLS: _rules((Operation.ALTER, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.DESCRIBE_CONFIGS: _rules(
        (Operation.DESCRIBE_CONFIGS, _CLUSTER, RefusalEffect.ITEM),
        (Operation.DESCRIBE_CONFIGS, _TOPIC, RefusalEffect.ITEM),
        (Operation.DESCRIBE_CONFIGS, _GROUP, RefusalEffect.ITEM),
    ),
    ApiKey.ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _rules((Operation.ALTER, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.DESCRIBE_LOG_DIRS: _rules((Operation.DESCRIBE, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.CREATE_PARTITIONS: _rules((Operation.ALTER, _TOPIC, RefusalEffect.ITEM)),
    ApiKey.DELETE_GROUPS: _rules((Operation.DELETE, _GROUP, RefusalEffect.ITEM)),
    ApiKey.ELECT_LEADERS: _rules((Operation.ALTER, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _rules((Operation.ALTER, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _rules((Operation.DESCRIBE, _CLUSTER, RefusalEffect.REQUEST)),
    ApiKey.OFFSET_DELETE: _rules(
        (Operation.DELETE, _GROUP, RefusalEffect.REQUEST), (Operation.READ, _TOPIC, RefusalEffect.ITEM)
    ),
    ApiKey.DESCRIBE_CLUSTER: _rules((Operation.DESCRIBE, _CLUSTER, RefusalEffect.FIELD)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _rules(_READ_GROUP),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _rules((Operation.DESCRIBE, _GROUP, RefusalEffect.ITEM)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _rules((Operation.DESCRIBE, _TOPIC, RefusalEffect.ITEM)),
    ApiKey.SHARE_GROUP_HEARTBEAT: _rules(_READ_GROUP),
    ApiKey.SHARE_GROUP_DESCRIBE: _rules((Operation.DESCRIBE, _GROUP, RefusalEffect.ITEM)),
}
