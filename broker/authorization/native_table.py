"""The operations that each method of the native service asks for. Pure.

A subscription is a resource of type GROUP with the subscription's name, as Apache Kafka's share groups are.

1. Attaching a consumer and granting it permits (permissions to send it one more record each) require the same
   operations. So a consumer that is no longer authorized gets no records beyond the permits that it has.
2. The other calls of attached consumers require no operation: they act only on consumers of their own connection.
3. `replicate` requires no operation: it needs a stream that `open_replication` has opened on the same connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.authorization.rule import RefusalEffect, Rule


class NativeMethod(Enum):
    """The methods, each with its name in the protocol."""

    LOOKUP = "lookup"
    TOPIC = "topic"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    SEEK = "seek"
    STATS = "stats"
    SUBSCRIPTIONS = "subscriptions"
    DESCRIBE_SUBSCRIPTION = "describe_subscription"
    SUBSCRIBED_TOPICS = "subscribed_topics"
    IS_IDLE = "is_idle"
    IDLE_SUBSCRIPTIONS = "idle_subscriptions"
    RECEIVE = "receive"
    CLOSE_CONSUMERS = "close_consumers"
    FLOW = "flow"
    ACK = "ack"
    ACK_UP_TO = "ack_up_to"
    NACK = "nack"
    OPEN_REPLICATION = "open_replication"
    REPLICATE = "replicate"
    REPLICATION = "replication"
    PLAN = "plan"
    READ_HOLDS = "read_holds"
    PRODUCER_ID = "producer_id"
    WRITE = "write"
    FENCE = "fence"
    END = "end"
    TABLE_WRITE = "table_write"
    TABLE_GET = "table_get"
    TABLE_SCAN = "table_scan"
    TABLE_COUNT = "table_count"
    TABLE_WATCH = "table_watch"
    TABLE_SNAPSHOT = "table_snapshot"
    TABLE_PARTS = "table_parts"
    TABLE_STATUS = "table_status"
    TABLES = "tables"


_DESCRIBE_TOPIC = Rule(Operation.DESCRIBE, ResourceType.TOPIC, RefusalEffect.REQUEST)
_WRITE_TOPIC = Rule(Operation.WRITE, ResourceType.TOPIC, RefusalEffect.REQUEST)
_READ_TOPIC = Rule(Operation.READ, ResourceType.TOPIC, RefusalEffect.REQUEST)

NATIVE_RULES: Final[Mapping[NativeMethod, tuple[Rule, ...]]] = {
    NativeMethod.LOOKUP: (_DESCRIBE_TOPIC,),
    NativeMethod.TOPIC: (_DESCRIBE_TOPIC,),
    NativeMethod.SUBSCRIBE: (_READ_TOPIC, Rule(Operation.READ, ResourceType.GROUP, RefusalEffect.ITEM)),
    NativeMethod.UNSUBSCRIBE: (_READ_TOPIC, Rule(Operation.DELETE, ResourceType.GROUP, RefusalEffect.REQUEST)),
    NativeMethod.SEEK: (_READ_TOPIC, Rule(Operation.READ, ResourceType.GROUP, RefusalEffect.REQUEST)),
    NativeMethod.STATS: (_DESCRIBE_TOPIC, Rule(Operation.DESCRIBE, ResourceType.GROUP, RefusalEffect.HIDDEN)),
    NativeMethod.SUBSCRIPTIONS: (_DESCRIBE_TOPIC, Rule(Operation.DESCRIBE, ResourceType.GROUP, RefusalEffect.HIDDEN)),
    NativeMethod.DESCRIBE_SUBSCRIPTION: (
        _DESCRIBE_TOPIC,
        Rule(Operation.DESCRIBE, ResourceType.GROUP, RefusalEffect.REQUEST),
    ),
    NativeMethod.SUBSCRIBED_TOPICS: (Rule(Operation.DESCRIBE, ResourceType.TOPIC, RefusalEffect.HIDDEN),),
    NativeMethod.IS_IDLE: (_DESCRIBE_TOPIC, Rule(Operation.DESCRIBE, ResourceType.GROUP, RefusalEffect.REQUEST)),
    NativeMethod.IDLE_SUBSCRIPTIONS: (Rule(Operation.DESCRIBE, ResourceType.CLUSTER, RefusalEffect.REQUEST),),
    NativeMethod.RECEIVE: (),
    NativeMethod.CLOSE_CONSUMERS: (),
    NativeMethod.FLOW: (
        Rule(Operation.READ, ResourceType.TOPIC, RefusalEffect.ITEM),
        Rule(Operation.READ, ResourceType.GROUP, RefusalEffect.ITEM),
    ),
    NativeMethod.ACK: (),
    NativeMethod.ACK_UP_TO: (),
    NativeMethod.NACK: (),
    NativeMethod.OPEN_REPLICATION: (Rule(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, RefusalEffect.REQUEST),),
    NativeMethod.REPLICATE: (),
    NativeMethod.REPLICATION: (_DESCRIBE_TOPIC,),
    NativeMethod.PLAN: (_READ_TOPIC,),
    NativeMethod.READ_HOLDS: (_DESCRIBE_TOPIC,),
    NativeMethod.PRODUCER_ID: (_WRITE_TOPIC,),
    NativeMethod.WRITE: (_WRITE_TOPIC,),
    NativeMethod.FENCE: (_WRITE_TOPIC,),
    NativeMethod.END: (_DESCRIBE_TOPIC,),
    NativeMethod.TABLE_WRITE: (_WRITE_TOPIC, _READ_TOPIC),
    NativeMethod.TABLE_GET: (_READ_TOPIC,),
    NativeMethod.TABLE_SCAN: (_READ_TOPIC,),
    NativeMethod.TABLE_COUNT: (_READ_TOPIC,),
    NativeMethod.TABLE_WATCH: (_READ_TOPIC,),
    NativeMethod.TABLE_SNAPSHOT: (_WRITE_TOPIC,),
    NativeMethod.TABLE_PARTS: (_READ_TOPIC,),
    NativeMethod.TABLE_STATUS: (_READ_TOPIC,),
    NativeMethod.TABLES: (Rule(Operation.DESCRIBE, ResourceType.TOPIC, RefusalEffect.HIDDEN),),
}
"""A call that is refused as a whole fails with `NotAuthorized`."""
