"""Consumer groups of KIP-848 and share groups: refused, as Kafka does where both are switched off.

The code makes clients end at once: librdkafka with a fatal error, Java's with the advice to use the classic protocol.
Java's admin client asks for a classic group instead.
"""

from __future__ import annotations

from gnomon.broker.kafka.request import Handler, Request, too_many
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.modern_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)

REFUSED = ErrorCode.UNSUPPORTED_VERSION
CONSUMER_GROUPS = "The new consumer group protocol is not built yet: set group.protocol=classic."
SHARE_GROUPS = "Share groups are not built yet: use a consumer group with group.protocol=classic."


def _consumer_heartbeat(request: Request) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=REFUSED, error_message=CONSUMER_GROUPS)


def _share_heartbeat(request: Request) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=REFUSED, error_message=SHARE_GROUPS)


def _describe_consumer_groups(request: Request) -> ConsumerGroupDescribeResponse | None:
    message: ConsumerGroupDescribeRequest = request.message
    if too_many(request, len(message.group_ids), "groups"):
        return None
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedConsumerGroup(error_code=REFUSED, error_message=CONSUMER_GROUPS, group_id=group)
            for group in message.group_ids
        ]
    )


def _describe_share_groups(request: Request) -> ShareGroupDescribeResponse | None:
    message: ShareGroupDescribeRequest = request.message
    if too_many(request, len(message.group_ids), "groups"):
        return None
    return ShareGroupDescribeResponse(
        groups=[
            DescribedShareGroup(error_code=REFUSED, error_message=SHARE_GROUPS, group_id=group)
            for group in message.group_ids
        ]
    )


MODERN_GROUP_HANDLERS: dict[int, Handler] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_consumer_groups,
    ApiKey.SHARE_GROUP_HEARTBEAT: _share_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: _describe_share_groups,
}
