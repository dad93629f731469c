"""Batches that are recompressed in a thread (numbers: invariants of `recoding`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.partition.unpacking.recoding import (
    AT_ONCE_BYTES_MAX,
    RECODED_BYTES_MAX,
    TakesLong,
    recoded,
    recoded_at_once,
)
from gnomon.log.entry import Offset
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

Play = Callable[..., None]
BATCH_BYTES_MAX = 1 << 20


def batch_of(value: bytes, codec: Codec = Codec.ZSTD, **producer: int) -> bytes:
    return build_batch([Record(value=value)], base_timestamp=1000, compression=codec, **producer)


LONG = batch_of(bytes(AT_ONCE_BYTES_MAX + 1))


class Gate(BatchThread):
    """Recompresses when it is opened."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.opened = trio.Event()

    async def work(self, *args: Any) -> Any:
        await self.opened.wait()
        return await super().work(*args)


async def gated_partition(act: Any, **settings: Any) -> tuple[Any, Gate]:
    act.batch_thread = gate = Gate(act.batch_thread._world)
    partition = await act.partition(codec=Codec.GZIP, **settings)
    await partition.opened()
    return partition, gate


def test_only_a_batch_of_few_bytes_and_few_bytes_of_records_is_recompressed_at_once() -> None:
    """1."""
    short = memoryview(batch_of(b"v" * 1000))
    assert parse_batch(recoded_at_once(short, Codec.GZIP, BATCH_BYTES_MAX)).compression == Codec.GZIP
    assert len(LONG) < 1000
    incompressible = bytes(range(256)) * (AT_ONCE_BYTES_MAX // 256)
    for long in (LONG, batch_of(incompressible, Codec.NONE)):
        with pytest.raises(TakesLong):
            recoded_at_once(memoryview(long), Codec.GZIP, BATCH_BYTES_MAX)
        assert (
            parse_batch(recoded(memoryview(long), Codec.GZIP, BATCH_BYTES_MAX, RECODED_BYTES_MAX)).compression
            == Codec.GZIP
        )


def test_a_bomb_is_refused(play: Play) -> None:
    """2."""

    async def body(act: Any) -> None:
        partition = await act.partition(codec=Codec.GZIP)
        outcome = await act.send_batch(partition, batch_of(bytes(65 << 20))).wait()
        assert outcome.error is ErrorCode.MESSAGE_TOO_LARGE
        assert "compression.type" in outcome.text

    play(body)


def test_later_batches_wait_until_a_long_one_is_recompressed(play: Play) -> None:
    """1, and `writable` 1."""

    async def body(act: Any) -> None:
        partition, gate = await gated_partition(act)
        sent = [
            act.send_batch(partition, batch)
            for batch in (batch_of(b"a"), LONG, batch_of(b"b"), LONG, batch_of(b"c", Codec.GZIP))
        ]
        assert (await sent[0].wait()).base_offset == 0
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.outcome for answer in sent[1:]] == [None] * 4
        gate.opened.set()
        assert [(await answer.wait()).base_offset for answer in sent] == [0, 1, 2, 3, 4]
        assert [value[:1] for _, value in await act.read(partition)] == ["a", "\0", "b", "\0", "c"]

    play(body)


def test_a_long_batch_that_begins_a_segment_stays_before_those_that_waited_for_it(play: Play) -> None:
    async def body(act: Any) -> None:
        act.batch_thread = gate = Gate(act.batch_thread._world)
        partition = await act.partition(codec=Codec.NONE, segment_bytes=100_000)
        await act.append(partition, "first")
        long = act.send_batch(partition, LONG)
        later = act.send(partition, "later")
        await trio.testing.wait_all_tasks_blocked()
        gate.opened.set()
        assert [(await each.wait()).base_offset for each in (long, later)] == [1, 2]
        assert len(partition.segments) == 3

    play(body)


def test_a_repeat_of_a_long_batch_gets_the_offset_of_its_first_copy(play: Play) -> None:
    async def body(act: Any) -> None:
        partition, gate = await gated_partition(act)
        gate.opened.set()
        long = batch_of(bytes(AT_ONCE_BYTES_MAX + 1), producer_id=7, producer_epoch=0, base_sequence=0)
        sent = [act.send_batch(partition, long) for _ in range(3)]
        assert [(await answer.wait()).base_offset for answer in sent] == [0, 0, 0]

    play(body)


def test_a_refused_long_batch_holds_up_no_other(play: Play) -> None:
    async def body(act: Any) -> None:
        partition, gate = await gated_partition(act)
        gate.opened.set()
        bomb = act.send_batch(partition, batch_of(bytes(65 << 20)))
        later = act.send_batch(partition, batch_of(b"later"))
        assert (await bomb.wait()).error is ErrorCode.MESSAGE_TOO_LARGE
        assert (await later.wait()).base_offset == Offset(0)

    play(body)


def test_a_long_batch_whose_client_is_gone_is_refused_and_holds_up_no_other(play: Play) -> None:
    async def body(act: Any) -> None:
        partition, gate = await gated_partition(act)
        long = batch_of(bytes(AT_ONCE_BYTES_MAX + 1), producer_id=7, producer_epoch=0, base_sequence=0)
        dropped, later = act.send_batch(partition, long), act.send_batch(partition, batch_of(b"later"))
        dropped.gone = True
        gate.opened.set()
        assert (await dropped.wait()).error is ErrorCode.NETWORK_EXCEPTION
        assert (await later.wait()).base_offset == Offset(0)
        following = batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=1)
        assert (await act.send_batch(partition, following).wait()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await act.send_batch(partition, long).wait()).base_offset == Offset(1)

    play(body)


def test_a_long_batch_is_refused_if_its_partition_is_released_meanwhile(play: Play) -> None:
    async def body(act: Any) -> None:
        partition, gate = await gated_partition(act)
        sent = [act.send_batch(partition, LONG), act.send_batch(partition, batch_of(b"later"))]
        partition.release()
        gate.opened.set()
        assert [(await answer.wait()).error for answer in sent] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    play(body)
