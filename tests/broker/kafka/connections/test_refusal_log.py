"""Refusals of features that are not built are logged, once for each client and reason."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.kafka.connections import refusal_log
from gnomon.runtime.limited_log import LINES_MAX, PERIOD_SECONDS
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.messages.acls import AclCreation, CreateAclsRequest, DescribeAclsRequest
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest, SaslHandshakeRequest
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest
from gnomon.wire.kafka.messages.modern_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from gnomon.wire.kafka.messages.produce import InitProducerIdRequest
from gnomon.wire.kafka.records import Record, build_batch

BATCH = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
TRANSACTION = FindCoordinatorRequest(key_type=1, key="tx")
CASES: list[tuple[ProtocolMessage, int, str]] = [
    (TRANSACTION, 1, "unset transactional.id"),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6, "unset transactional.id"),
    (FindCoordinatorRequest(key_type=2, coordinator_keys=["share"]), 6, "share groups are not built"),
    (InitProducerIdRequest(transactional_id="tx"), 4, "unset transactional.id"),
    (ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]), 1, "KIP-848"),
    (ShareGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]), 1, "share groups are not built"),
    (ShareGroupDescribeRequest(group_ids=["g"]), 1, "share groups are not built"),
    (SaslHandshakeRequest(mechanism="PLAIN"), 1, "SASL is not built"),
    (CreateAclsRequest(creations=[AclCreation(resource_name="t", principal="User:x", host="*")]), 3, "ACLs"),
]


def logged(broker: EmbeddedBroker) -> list[dict[str, Any]]:
    return [dict(fields) for event, fields in broker.events if event == "not_built"]


async def connect(broker: EmbeddedBroker, client_id: str) -> BrokerClient:
    return BrokerClient(await WireConnection.open(broker.client_world, "broker", 9092, client_id))


@pytest.mark.parametrize(("request_message", "version", "word"), CASES)
def test_the_refusal_of_a_feature_that_is_not_built_is_logged_with_its_client_and_reason(
    request_message: ProtocolMessage, version: int, word: str
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await connect(broker, "billing")
        await client.ask(ApiVersionsRequest(client_software_name="some-client", client_software_version="1.2"), 3)
        await client.ask(request_message, version)
        (line,) = logged(broker)
        assert word in line["reason"]
        assert (line["client"], line["software"]) == ("billing", "some-client 1.2")
        assert line["address"] == "clients"

    simulate_broker(scenario)


def test_a_client_that_repeats_requests_or_reconnects_is_logged_once_for_each_reason() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        for _ in range(3):
            client = await connect(broker, "billing")
            for _ in range(3):
                await client.ask(TRANSACTION, 2)
                await client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1)
        other = await connect(broker, "orders")
        await other.ask(TRANSACTION, 2)
        reasons = [(line["client"], line["reason"].split()[0]) for line in logged(broker)]
        assert reasons == [("billing", "transactions"), ("billing", "share"), ("orders", "transactions")]

    simulate_broker(scenario)


def test_a_batch_of_a_transaction_is_refused_with_its_reason_in_every_version() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await connect(broker, "billing")
        await client.create_topic("t")
        request = client.produce_request("t", BATCH, transactional_id="tx")
        for version in (3, 9):  # the older one has no room for a text
            response = await client.ask(request, version)
            code = response.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert [line["reason"] for line in logged(broker)] == [refusal_log.TRANSACTIONS]

    simulate_broker(scenario)


def test_requests_that_clients_send_on_their_own_to_describe_are_not_logged() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await connect(broker, "console")
        await client.ask(DescribeAclsRequest(), 3)
        await client.ask(
            ConsumerGroupDescribeRequest(group_ids=["g"]), 1
        )  # Java's admin, before it sends the older request
        assert logged(broker) == []

    simulate_broker(scenario)


def test_a_bounded_number_of_clients_is_remembered_and_a_bounded_part_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusal_log, "CLIENTS_MAX", 3)

    async def scenario(broker: EmbeddedBroker) -> None:
        for name in ("a", "b", "c", "a", "d", "a", "b"):
            await broker.simulation.sleep(PERIOD_SECONDS)
            client = await connect(broker, name)
            await client.ask(TRANSACTION, 2)
        assert [line["client"] for line in logged(broker)] == ["a", "b", "c", "d", "b"]
        await broker.simulation.sleep(PERIOD_SECONDS)
        client = await connect(broker, "x" * 1000)
        await client.ask(ApiVersionsRequest(client_software_name="y" * 30_000), 3)
        await client.ask(TRANSACTION, 2)
        line = logged(broker)[-1]
        assert (line["client"], line["software"]) == ("x" * 100, "y" * 100)

    simulate_broker(scenario)


def test_one_address_with_many_client_ids_gets_a_few_lines_a_second_and_a_number() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        clients = {f"client-{number}": await connect(broker, f"client-{number}") for number in range(50)}
        for client in clients.values():
            client.connection.send(TRANSACTION, 2)
        await broker.simulation.sleep(2 * PERIOD_SECONDS)
        lines = logged(broker)
        assert len(lines) == LINES_MAX + 1
        assert lines[-1]["more"] == 50 - LINES_MAX
        await clients[lines[0]["client"]].ask(TRANSACTION, 2)
        assert logged(broker) == lines, "it has its line"
        left_out = next(name for name in clients if name not in [line["client"] for line in lines])
        await clients[left_out].ask(TRANSACTION, 2)
        assert logged(broker)[-1]["client"] == left_out, "it has had none"

    simulate_broker(scenario)


def test_a_flood_for_one_reason_hides_no_other_reason_of_its_address() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        for number in range(LINES_MAX + 2):
            await (await connect(broker, f"client-{number}")).ask(TRANSACTION, 2)
        await (await connect(broker, "shares")).ask(ShareGroupDescribeRequest(group_ids=["g"]), 1)
        assert logged(broker)[-1]["client"] == "shares"

    simulate_broker(scenario)
