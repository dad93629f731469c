"""Consumer groups of KIP-848 and share groups: every request about them is refused."""

from __future__ import annotations

import pytest

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import APIS, REFUSED_ELEMENTS_MAX, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest
from gnomon.wire.kafka.messages.modern_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

CASES = [
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"])),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=["g", "h"])),
    (ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"])),
    (ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(group_ids=["g", "h"])),
]


@pytest.mark.parametrize(("key", "request_message"), CASES, ids=[key.name.lower() for key, _ in CASES])
def test_requests_of_modern_groups_are_advertised_and_refused_as_an_unsupported_version(
    key: ApiKey, request_message: ProtocolMessage
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        answered = await client.ask(ApiVersionsRequest(), 4)
        assert key in {item.api_key for item in answered.api_keys}
        assert (answered.supported_features, answered.finalized_features) == ([], [])
        api = APIS[key]
        for version in range(api.min_version, api.max_version + 1):
            response = await client.ask(request_message, version)
            if key.name.endswith("DESCRIBE"):
                assert [group.group_id for group in response.groups] == ["g", "h"]
            for answer in response.groups if key.name.endswith("DESCRIBE") else [response]:
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
                assert "group.protocol=classic" in answer.error_message

    simulate_broker(scenario)


@pytest.mark.parametrize("kind", [ConsumerGroupDescribeRequest, ShareGroupDescribeRequest])
def test_a_request_with_too_many_groups_ends_its_connection(
    kind: type[ConsumerGroupDescribeRequest | ShareGroupDescribeRequest],
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        assert len((await client.ask(kind(group_ids=["g"] * REFUSED_ELEMENTS_MAX), 1)).groups) == REFUSED_ELEMENTS_MAX
        client.connection.send(kind(group_ids=["g"] * 10_001), 1)
        await broker.simulation.sleep(1)
        event, fields = broker.events[-1]
        assert event == "connection_refused"
        assert f"more than {REFUSED_ELEMENTS_MAX} elements" in str(fields["reason"])

    simulate_broker(scenario)
