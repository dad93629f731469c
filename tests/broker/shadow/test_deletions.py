"""DeleteTopics of a source together with its shadows, in one request."""

from __future__ import annotations

import pytest
from topic_calls import batch, cast, delete

from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicState

BY_ID_VERSION = 6


async def sources_and_shadows(broker: EmbeddedBroker) -> BrokerClient:
    """`orders` and `clicks`, each with a shadow."""
    client = await broker.connect()
    for source in ("orders", "clicks"):
        await client.create_topic(source)
        await client.produce(source, batch("a"))
        assert await cast(client, f"{source}-copy", source) == (0, None)
    return client


async def delete_together(
    client: BrokerClient, names: list[str], version: int = 5
) -> list[tuple[str, int, str | None]]:
    if version < BY_ID_VERSION:
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=10_000)
    answer = await client.ask(request, version)
    return [(each.name, each.error_code, each.error_message) for each in answer.responses]


@pytest.mark.parametrize("version", [5, BY_ID_VERSION])
def test_a_source_and_its_shadow_are_deleted_by_one_request_in_any_order(
    version: int,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await sources_and_shadows(broker)
        names = ["orders", "orders-copy", "nothing", "clicks-copy", "clicks"]
        answers = await delete_together(client, names, version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(name, code) for name, code, _ in answers] == [
            (name, unknown if name == "nothing" else 0) for name in names
        ]
        for name in names:
            assert (await delete(client, name))[0] == unknown

    simulate_broker(scenario)


def test_the_deletion_of_a_source_is_refused_with_the_reason_if_its_shadow_cannot_be_deleted() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await sources_and_shadows(broker)
        answers = await delete_together(client, ["orders", "clicks", "orders-copy", "orders-copy", "clicks-copy"])
        text = "Topic 'orders' has shadows that show its records: delete orders-copy first."
        assert answers[0] == ("orders", ErrorCode.POLICY_VIOLATION, text)
        assert [(name, code) for name, code, _ in answers[1:]] == [
            ("clicks", 0),
            ("orders-copy", ErrorCode.INVALID_REQUEST),
            ("clicks-copy", 0),
        ]

    simulate_broker(scenario)
