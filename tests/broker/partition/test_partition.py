"""The driver of a partition on real stores (numbers: invariants of `partition`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.readable import REOPEN_SECONDS
from gnomon.log.entry import Offset
from gnomon.wire.kafka.errors import ErrorCode

Play = Callable[..., None]


class _Waiter:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_acknowledged_records_are_read_back_and_the_log_continues_after_a_crash(play: Play) -> None:
    async def first(act: Any) -> None:
        partition = await act.partition()
        assert (await act.append(partition, "a", "b")).base_offset == 0
        assert (await act.append(partition, "c")).base_offset == 2
        assert await act.read(partition) == [(0, "a"), (1, "b"), (2, "c")]

    async def second(act: Any) -> None:
        partition = await act.partition()
        assert await act.read(partition) == [(0, "a"), (1, "b"), (2, "c")]
        assert (await act.append(partition, "d")).base_offset == 3
        assert partition.log is not None
        assert partition.log.epoch == 1

    for power_lost in (False, True):
        play(first, second, power_lost=power_lost)


def test_opening_costs_one_metadata_read_and_one_write(play: Play) -> None:  # invariant 1
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=200)
        with act.metadata.measure() as cost:
            await partition.opened()
        assert (cost.reads, cost.writes) == (1, 1)
        for number in range(8):
            await act.append(partition, f"{number}" * 50)
        assert len(partition.segments) > 2
        again = await act.partition()
        with act.metadata.measure() as cost:
            await again.opened()
        assert (cost.reads, cost.writes) == (1, 1)

    play(body)


def test_nothing_is_opened_before_the_first_use(play: Play) -> None:  # invariant 1
    async def body(act: Any) -> None:
        partition = await act.partition()
        with act.metadata.measure() as cost:
            await act.clock.sleep(5)
            await partition.enforce_retention()
        assert (cost.reads, cost.writes) == (0, 0)
        assert partition.log is None

    play(body)


def test_appends_that_come_while_it_opens_or_rolls_keep_their_order(play: Play) -> None:  # invariant 2
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=300)
        answers = [act.send(partition, f"{number:03}" * 20) for number in range(30)]
        offsets = [(await answer.wait()).base_offset for answer in answers]
        assert offsets == list(range(30))
        assert [value[:3] for _, value in await act.read(partition)] == [f"{number:03}" for number in range(30)]
        assert len(partition.segments) > 5

    play(body)


def test_a_repeat_is_answered_only_once_its_first_copy_is_durable(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        order: list[str] = []

        async def note(name: str, answer: Any) -> None:
            await answer.wait()
            order.append(name)

        first = act.send(partition, "a", producer_id=5, base_sequence=0)
        repeat = act.send(partition, "a", producer_id=5, base_sequence=0)
        assert repeat.outcome is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, "repeat", repeat)
            nursery.start_soon(note, "first", first)
        assert first.outcome is not None
        assert repeat.outcome is not None
        assert first.outcome.base_offset == repeat.outcome.base_offset == 0
        assert await act.read(partition) == [(0, "a")]

    play(body)


def test_after_a_full_disk_pending_appends_fail_and_the_log_continues_after_its_durable_prefix(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "kept")
        act.machine.disk.conditions.full = True
        lost = [act.send(partition, "lost", producer_id=5, base_sequence=number) for number in range(3)]
        outcomes = [await answer.wait() for answer in lost]
        assert {outcome.error.retriable for outcome in outcomes} == {True}
        assert await act.read(partition) == [(0, "kept")]
        refused = await act.append(partition, "refused")
        assert refused.error.retriable
        act.machine.disk.conditions.full = False
        await act.clock.sleep(2)
        for number in range(3):
            again = await act.append(partition, "again", producer_id=5, base_sequence=number)
            assert (again.error, again.base_offset) == (ErrorCode.NONE, number + 1)
        assert [value for _, value in await act.read(partition)] == ["kept", "again", "again", "again"]

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        assert [value for _, value in await act.read(partition)] == ["kept", "again", "again", "again"]

    play(body, reopened)  # invariant 3


def test_a_fenced_leader_shows_nothing_until_it_claims_the_chain_again(play: Play) -> None:
    async def body(act: Any) -> None:
        old, new = await act.partition(), await act.partition()
        await act.append(old, "a")
        await new.opened()
        fenced = await act.append(old, "b")
        assert fenced.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (old.log, old.failure) == (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (await act.append(new, "c")).base_offset == 1
        assert (await act.append(old, "too soon")).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await act.clock.sleep(REOPEN_SECONDS)
        assert (await act.append(old, "d")).base_offset == 2  # it claims the chain back on its next use
        assert [value for _, value in await act.read(old)] == ["a", "c", "d"]
        assert (await act.append(new, "e")).error == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(body)


def test_a_failed_device_fails_the_pending_appends(play: Play) -> None:
    answers: list[Any] = []

    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "kept")
        act.machine.disk.conditions.fail_next = True
        answers.append(act.send(partition, "lost"))
        await trio.sleep_forever()

    with pytest.raises(AssertionError, match="DiskFailed"):  # the node stops itself
        play(body)
    assert answers[0].outcome is not None
    assert answers[0].outcome.error.retriable


def test_when_the_topic_is_deleted_waiting_readers_and_appends_are_answered(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        waiter = _Waiter()
        partition.wait(waiter)
        pending = act.send(partition, "pending")
        partition.end()
        assert waiter.woken == 1
        assert (await pending.wait()).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await act.append(partition, "late")).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await partition.opened() is None
        assert partition.failure == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError):
            await partition.delete_before(Offset(0))

    play(body)


def test_a_topic_that_is_deleted_while_its_partition_opens_stays_deleted(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        stalled = act.send(partition, "stalled")
        partition.end()
        assert (await stalled.wait()).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await act.clock.sleep(5)
        assert partition.log is None
        assert partition.failure == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(body)


def test_a_waiter_is_woken_by_every_advance_until_it_stops_waiting(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        waiter = _Waiter()
        partition.wait(waiter)  # opens it
        await partition.opened()
        await act.clock.sleep(0.1)
        opened = waiter.woken
        assert opened >= 1
        await act.append(partition, "a")
        await act.clock.sleep(0.1)
        assert waiter.woken > opened
        partition.stop_waiting(waiter)
        woken = waiter.woken
        await act.append(partition, "b")
        await act.clock.sleep(0.1)
        assert waiter.woken == woken

    play(body)


def test_a_partition_that_cannot_be_opened_refuses_appends_and_is_opened_again_later(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.clock.sleep(1)
        act.machine.disk.conditions.full = True
        answers = [act.send(partition, "a"), act.send(partition, "b")]
        assert {(await answer.wait()).error for answer in answers} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert (await act.append(partition, "at once")).error == ErrorCode.KAFKA_STORAGE_ERROR
        act.machine.disk.conditions.full = False
        await act.clock.sleep(2)
        assert (await act.append(partition, "c")).base_offset == 0

    play(body)


def test_a_damaged_last_entry_is_a_storage_error_and_is_logged_once(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        for number in range(3):
            await act.append(partition, f"{number}")
        act.damage(partition, 2)

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        for _ in range(3):
            assert (await act.append(partition, "next")).error == ErrorCode.KAFKA_STORAGE_ERROR
            assert await partition.opened() is None
            assert partition.failure == ErrorCode.KAFKA_STORAGE_ERROR
            await act.clock.sleep(1)
        ((event, fields),) = act.logger.events
        assert event == "partition_not_opened"
        assert re.search(r"entry 2 of ledger \d+ is damaged", fields["reason"])

    play(body, reopened)


def test_a_released_partition_refuses_appends_and_answers_those_in_flight(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "a")
        on_its_way = act.send(partition, "b")
        partition.release()
        late = act.send(partition, "c")
        assert late.outcome is not None
        assert late.outcome.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (partition.open_log(), partition.failure) == (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (await on_its_way.wait()).base_offset == 1
        assert await partition.opened() is None
        with pytest.raises(KafkaError, match="not open for writing"):
            await partition.delete_before(Offset(1))
        assert await act.read(await act.partition()) == [(0, "a"), (1, "b")]
        partition.release()

    play(body)


def test_a_partition_that_is_released_while_it_opens_refuses_the_waiting_appends(play: Play) -> None:
    async def body(act: Any) -> None:
        await act.append(await act.partition(), "a")
        partition = await act.partition()
        waiting = act.send(partition, "b")
        partition.release()
        assert (await waiting.wait()).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await act.clock.sleep(1)
        assert partition.open_log() is None

    play(body)


def test_a_fenced_leader_logs_it_once(play: Play) -> None:
    async def body(act: Any) -> None:
        old = await act.partition()
        await act.append(old, "a")
        new = await act.partition()
        await act.append(new, "b")
        for answer in [act.send(old, "c"), act.send(old, "d")]:
            assert (await answer.wait()).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [event for event, _ in act.logger.warnings] == ["partition_not_written"]
        assert act.logger.events == []  # a takeover is no error

    play(body)
