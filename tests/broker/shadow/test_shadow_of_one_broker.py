"""A shadow beside its source, on the one broker of a standalone node, as Kafka's clients see it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from gnomon.testing.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

SOURCE = "gnomon.shadow.source"


def batch(*values: str, at: int = 1000) -> bytes:
    return build_batch(
        [Record(offset_delta=number, value=value.encode()) for number, value in enumerate(values)], base_timestamp=at
    )


async def cast(client: BrokerClient, source: str = "orders", shadow: str = "copy") -> UUID:
    return await client.create_topic(shadow, -1, {SOURCE: source})


async def values(client: BrokerClient, topic: str, offset: int = 0, **fields: Any) -> list[str]:
    fetched = await client.fetch(topic, offset, **fields)
    assert fetched.error_code == 0, ErrorCode(fetched.error_code)
    records = memoryview(fetched.records or b"")
    found: list[str] = []
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        found += [(record.value or b"").decode() for record in iterate_records(records[:size], 1 << 20)]
        records = records[size:]
    return found


def test_a_shadow_shows_the_bytes_of_its_source_and_refuses_to_be_written() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch("a", "b"))
        await cast(client)
        await client.produce("orders", batch("c"))
        assert await values(client, "copy") == ["a", "b", "c"]
        source, shadow = await client.fetch("orders", 0), await client.fetch("copy", 0)
        assert (shadow.records, shadow.high_watermark, shadow.log_start_offset) == (
            source.records,
            source.high_watermark,
            source.log_start_offset,
        )
        refused = await client.produce("copy", batch("d"))
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert refused.error_message == "topic 'copy' is a shadow of 'orders': write to the source"

    simulate_broker(scenario)


def test_a_reader_at_the_end_of_a_shadow_is_woken_by_what_is_written_to_the_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, writer = await broker.connect(), await broker.connect()
        await client.create_topic("orders")
        await cast(client)
        await client.produce("orders", batch("a"))
        assert await values(client, "copy") == ["a"]
        clock = broker.simulation.clock
        for number in range(1, 20):
            request = client.fetch_request("copy", number, max_wait_ms=30_000)
            asked = client.connection.send(request, 11)
            await clock.sleep(0.5)
            await writer.produce("orders", batch(str(number)))
            written_at = clock.monotonic()
            response = await client.connection.wait(asked)
            assert response.responses[0].partitions[0].high_watermark == number + 1
            assert clock.monotonic() - written_at < 0.05

    simulate_broker(scenario)
