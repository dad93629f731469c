"""Unpacked records of compressed batches; numbers cite the invariants of `unpacked`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from gnomon.broker.subscriptions import unpacked
from gnomon.broker.subscriptions.allowance import Allowance
from gnomon.broker.subscriptions.unpacked import UnpackedBatches
from gnomon.log.entry import Offset
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.wire.kafka.compression import Codec, compress
from gnomon.wire.kafka.primitives import Buffer

AT_ONCE = 1000
MAX = 10_000
OF = "a partition"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacked, "AT_ONCE_BYTES_MAX", AT_ONCE)
    monkeypatch.setattr(unpacked, "UNPACKED_BYTES_MAX", MAX)
    monkeypatch.setattr(unpacked, "ENTRY_BYTES", 0)


def packed(size: int) -> memoryview:
    return memoryview(bytes(compress(Codec.ZSTD, b"x" * size)))


def with_batches(test: Callable[[UnpackedBatches], Awaitable[None]]) -> None:
    async def scenario(simulation: Simulation) -> None:
        over = trio.Event()

        async def node(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                await test(UnpackedBatches(world, nursery, Allowance()))
            over.set()

        simulation.machine("node").start(node)
        await over.wait()

    simulate(1, scenario)


async def unpack(batches: UnpackedBatches, base: int, body: memoryview) -> int:
    """The size of a batch once it is unpacked."""
    send, receive = trio.open_memory_channel[Buffer](1)
    data = batches.get((OF, Offset(base)), Codec.ZSTD, body, send.send_nowait)
    if data is None:
        data = await receive.receive()
        assert batches.get((OF, Offset(base)), Codec.ZSTD, body, send.send_nowait) is data
    return len(data)


def test_a_small_batch_is_unpacked_at_once_and_a_large_one_in_a_thread() -> None:  # 2
    async def test(batches: UnpackedBatches) -> None:
        small = batches.get((OF, Offset(0)), Codec.ZSTD, packed(AT_ONCE), lambda _: None)
        assert small is not None
        assert len(small) == AT_ONCE
        assert batches.get((OF, Offset(1)), Codec.ZSTD, packed(AT_ONCE + 1), lambda _: None) is None
        assert await unpack(batches, 1, packed(AT_ONCE + 1)) == AT_ONCE + 1

    with_batches(test)


def test_a_batch_that_cannot_be_unpacked_or_is_too_large_counts_as_empty() -> None:  # 3
    async def test(batches: UnpackedBatches) -> None:
        assert await unpack(batches, 0, memoryview(b"no stream of any codec")) == 0
        assert await unpack(batches, 1, packed(MAX + 1)) == 0
        assert await unpack(batches, 2, packed(MAX)) == MAX

    with_batches(test)


def test_the_last_used_batches_are_kept() -> None:  # 1
    async def test(batches: UnpackedBatches) -> None:
        for base in range(5):
            await unpack(batches, base, packed(MAX // 4))
            await unpack(batches, 0, packed(MAX // 4))
        assert [base for _, base in batches._kept] == [2, 3, 4, 0]
        batches.forget(OF)
        assert batches._kept == {}

    with_batches(test)
