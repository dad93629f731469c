"""Fetch answers, and answers shared by several readers (numbers: invariants of `poll`)."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.kafka.poll import RECENT_MAX, SMALL_BYTES_MAX, PollAnswer, RecentAnswers
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from gnomon.wire.kafka.records import Record, build_batch

pytestmark = pytest.mark.usefixtures("either_poll")


def _batch(value: bytes) -> bytes:
    return build_batch([Record(offset_delta=0, key=None, value=value)], base_timestamp=1)


def _answer(*chunks: bytes) -> PollAnswer:
    return PollAnswer(sum(map(len, chunks)), [memoryview(chunk) for chunk in chunks], 1, 1, ())


def test_small_answers_are_kept_as_copies_until_newer_ones_replace_them() -> None:
    recent = RecentAnswers()
    memory = bytearray(b"abc")
    recent.put("first", PollAnswer(5, [b"12", memoryview(memory)], 3, 1, ()))
    memory[:] = b"xyz"
    found = recent.get("first")
    assert found is not None
    assert (found.body_bytes, found.chunks, found.records_bytes, found.batches) == (5, [b"12abc"], 3, 1)
    recent.put("large", _answer(bytes(SMALL_BYTES_MAX), b"1"))
    assert recent.get("large") is None
    for number in range(RECENT_MAX):
        recent.put(number, _answer(b"1"))
    assert recent.get("first") is None
    assert all(recent.get(number) is not None for number in range(RECENT_MAX))


def test_an_answer_is_shared_with_other_readers_only_while_the_log_does_not_change() -> None:  # invariant 4
    async def scenario(broker: EmbeddedBroker) -> None:
        readers = [await broker.connect() for _ in range(2)]
        await readers[0].create_topic("t")
        await readers[0].produce("t", _batch(b"one"))

        async def fetched(offset: int) -> list[tuple[int, int, int, bytes]]:
            found = [await reader.fetch("t", offset) for reader in readers]
            return [(one.error_code, one.high_watermark, one.log_start_offset, bytes(one.records)[8:]) for one in found]

        first, second = await fetched(0)
        assert first == second
        assert first[:3] == (0, 1, 0)
        assert b"one" in first[3]
        await readers[0].produce("t", _batch(b"two"))
        first, second = await fetched(0)
        assert first == second
        assert b"one" in first[3]
        assert b"two" in first[3]
        wanted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        await readers[0].ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
        assert {code for code, *_ in await fetched(0)} == {ErrorCode.OFFSET_OUT_OF_RANGE}
        assert [one[:3] for one in await fetched(1)] == [(0, 2, 1)] * 2

    simulate_broker(scenario)


def test_fetches_after_a_waiting_request_hold_few_records_and_are_finally_answered() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        waiter = await broker.connect()
        await waiter.create_topic("t")
        for _ in range(6):
            assert (await waiter.produce("t", _batch(bytes(1_000_000)))).error_code == 0
        first = await waiter.ask(_join(), 3)
        connection = (await broker.connect()).connection
        answers = [connection.send(_join(), 3)]
        answers += [connection.send(waiter.fetch_request("t", 0, bytes_max=50 << 20), 11) for _ in range(20)]
        await broker.simulation.sleep(1)
        assert answers[0].message is None
        assert broker.server.backlog_bytes < 16 << 20
        assert (await waiter.ask(_join(first.member_id), 3)).error_code == 0
        for answer in answers[1:]:
            fetched: Any = await connection.wait(answer)
            assert fetched.responses[0].partitions[0].records
        assert broker.server.backlog_bytes == 0

    simulate_broker(scenario)


def _join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=20_000,
        rebalance_timeout_ms=8000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_topic_created_again_returns_no_records_of_its_former_life() -> None:  # invariant 4
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for value in (b"old", b"new"):
            await client.create_topic("t")
            await client.produce("t", _batch(value))
            found: Any = await client.fetch("t", 0)
            assert value in bytes(found.records)
            await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)

    simulate_broker(scenario)


def test_an_answer_that_cannot_grow_is_sent_at_once_with_any_min_bytes() -> None:  # invariant 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        batch = _batch(b"x" * 300)
        await client.create_topic("t", configs={"segment.bytes": str(3 * len(batch))})
        for _ in range(5):
            await client.produce("t", batch)

        async def asked(offset: int, bytes_max: int) -> tuple[int, bool]:
            """The number of batches in the answer, and whether it came at once."""
            wanted = client.fetch_request("t", offset, max_wait_ms=9000, min_bytes=4 * len(batch), bytes_max=bytes_max)
            poll = client.connection.send(wanted, 11)
            await broker.simulation.sleep(0.5)
            at_once = poll.settled.is_set()
            await broker.simulation.sleep(9)
            message: Any = poll.message
            return len(message.responses[0].partitions[0].records) // len(batch), at_once

        assert await asked(0, 1 << 20) == (3, True)  # the segment ends
        assert await asked(2, 1 << 20) == (1, True)
        assert await asked(3, 1 << 20) == (2, False)  # the log ends
        assert await asked(3, len(batch) + 1) == (1, True)  # the limit

    simulate_broker(scenario)
