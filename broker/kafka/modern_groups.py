"""Consumer groups of KIP-848 and share groups: requests are refused, as in a Kafka where both are off.

The error ends clients at once: librdkafka's client reports a fatal error, Java's advises to use the classic protocol.
Java's admin client then asks for a classic group, so a refused ConsumerGroupDescribe is not logged.
"""

from __future__ import annotations

from functools import partial

from gnomon.broker.kafka.connections.refusal_log import CONSUMER_GROUPS, SHARE_GROUPS, RefusalLog
from gnomon.broker.kafka.connections.request import Handler, Request
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


def _consumer_heartbeat(refusals: RefusalLog, request: Request) -> ConsumerGroupHeartbeatResponse:
    refusals.refused(request.exchange, CONSUMER_GROUPS)
    return ConsumerGroupHeartbeatResponse(error_code=REFUSED, error_message=CONSUMER_GROUPS)


def _share_heartbeat(refusals: RefusalLog, request: Request) -> ShareGroupHeartbeatResponse:
    refusals.refused(request.exchange, SHARE_GROUPS)
    return ShareGroupHeartbeatResponse(error_code=REFUSED, error_message=SHARE_GROUPS)


def _describe_consumer_groups(request: Request) -> ConsumerGroupDescribeResponse:
    message: ConsumerGroupDescribeRequest = request.message
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedConsumerGroup(error_code=REFUSED, error_message=CONSUMER_GROUPS, group_id=group)
            for group in message.group_ids
        ]
    )


def _describe_share_groups(refusals: RefusalLog, request: Request) -> ShareGroupDescribeResponse:
    message: ShareGroupDescribeRequest = request.message
    refusals.refused(request.exchange, SHARE_GROUPS)
    return ShareGroupDescribeResponse(
        groups=[
            DescribedShareGroup(error_code=REFUSED, error_message=SHARE_GROUPS, group_id=group)
            for group in message.group_ids
        ]
    )


def modern_group_handlers(refusals: RefusalLog) -> dict[int, Handler]:
    """The handler of each API key."""
    return {
        ApiKey.CONSUMER_GROUP_HEARTBEAT: partial(_consumer_heartbeat, refusals),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_consumer_groups,
        ApiKey.SHARE_GROUP_HEARTBEAT: partial(_share_heartbeat, refusals),
        ApiKey.SHARE_GROUP_DESCRIBE: partial(_describe_share_groups, refusals),
    }
