"""Seeks to missing positions: consuming continues at the nearest existing one, and the call returns its offset."""

from __future__ import annotations

from typing import Any

import pytest
from native_calls import delete_records, native, orders, values

from gnomon.client.errors import InvalidCall
from gnomon.log.dlsn import Dlsn
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

RECORDS, GONE = 6, 2


def test_a_seek_returns_the_offset_at_which_consuming_continues() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, RECORDS)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            messages = [await consumer.receive() for _ in range(RECORDS)]
            await delete_records(await broker.connect(), GONE)
            last = messages[-1]
            cases: list[tuple[Any, int]] = [
                (lambda: consumer.seek_to_offset(0, 4), 4),
                (lambda: consumer.seek_to_offset(0, 0), GONE),
                (lambda: consumer.seek_to_offset(0, -5), GONE),
                (lambda: consumer.seek_to_offset(0, 1 << 40), RECORDS),
                (lambda: consumer.seek_to_id(0, messages[3].id), 3),
                (lambda: consumer.seek_to_id(0, messages[0].id), GONE),
                (lambda: consumer.seek_to_id(0, Dlsn(last.id.segment, last.id.entry + 100, 0)), RECORDS),
                (lambda: consumer.seek_to_id(0, Dlsn(1 << 40, 0, 0)), RECORDS),
                (lambda: consumer.seek(messages[4]), {0: 4}),
                (lambda: consumer.seek(messages[1]), {0: GONE}),
                (lambda: consumer.seek("earliest"), {0: GONE}),
                (lambda: consumer.seek("latest"), {0: RECORDS}),
                (lambda: consumer.seek_to_time(messages[5].timestamp_ms), {0: 5}),
                (lambda: consumer.seek_to_time(1 << 50), {0: RECORDS}),
            ]
            for seek, expected in cases:
                assert await seek() == expected
                offset = expected[0] if isinstance(expected, dict) else expected
                if offset < RECORDS:
                    assert (await consumer.receive()).offset == offset
            await orders(broker, 1, first=RECORDS)
            assert await values(consumer, 1) == [RECORDS]
            with pytest.raises(InvalidCall):
                await consumer.seek_to_offset(1, 0)

    simulate_broker(scenario)
