"""Requests about ACLs: each is answered as by a Kafka broker without an authorizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import APIS, REFUSED_ELEMENTS_MAX, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest

CREATION = AclCreation(resource_name="t", principal="User:x", host="*")
CASES: list[tuple[ApiKey, ProtocolMessage, Callable[[Any], list[Any]]]] = [
    (ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(), lambda response: [response, response]),
    (ApiKey.CREATE_ACLS, CreateAclsRequest(creations=[CREATION] * 2), lambda response: response.results),
    (ApiKey.DELETE_ACLS, DeleteAclsRequest(filters=[DeleteAclsFilter()] * 2), lambda response: response.filter_results),
]


@pytest.mark.parametrize(("key", "request_message", "answers"), CASES, ids=[key.name.lower() for key, *_ in CASES])
def test_acl_requests_are_advertised_and_refused_because_security_is_disabled(
    key: ApiKey, request_message: ProtocolMessage, answers: Callable[[Any], list[Any]]
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        answered = await client.ask(ApiVersionsRequest(), 4)
        assert key in {item.api_key for item in answered.api_keys}
        api = APIS[key]
        for version in range(api.min_version, api.max_version + 1):
            first, second = answers(await client.ask(request_message, version))
            for answer in (first, second):
                assert answer.error_code == ErrorCode.SECURITY_DISABLED
                assert "not built yet" in answer.error_message

    simulate_broker(scenario)


@pytest.mark.parametrize(
    "request_message",
    [CreateAclsRequest(creations=[CREATION] * 10_001), DeleteAclsRequest(filters=[DeleteAclsFilter()] * 10_001)],
)
def test_a_request_with_too_many_acls_ends_its_connection(
    request_message: CreateAclsRequest | DeleteAclsRequest,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        client.connection.send(request_message, 3)
        await broker.simulation.sleep(1)
        event, fields = broker.events[-1]
        assert event == "connection_refused"
        assert f"more than {REFUSED_ELEMENTS_MAX} elements" in str(fields["reason"])

    simulate_broker(scenario)
