"""Unpacking long batches in turns of their clients (numbers: invariants of `batch_thread`)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from gnomon.broker.partition.unpacking.batch_thread import FIRST_BYTES, BatchThread, ClientGone
from gnomon.runtime.world import World
from gnomon.wire.kafka.compression import UnpackedTooLarge
from gnomon.wire.kafka.records import TooManyRecords

BYTES_MAX = 20 * FIRST_BYTES
BATCH = memoryview(b"batch")


class Slow:
    """A world whose thread ends a work when it is told to."""

    def __init__(self) -> None:
        self.running = 0
        self.begun: list[int] = []
        self.gate = trio.Semaphore(0)

    async def blocking(self, call: Callable[..., Any], *args: object) -> Any:
        self.running += 1
        assert self.running == 1
        self.begun.append(cast("int", args[-1]))
        try:
            await self.gate.acquire()
            return call(*args)
        finally:
            self.running -= 1


class Client:
    """A client, and the bytes that it is charged for."""

    def __init__(self) -> None:
        self.turn_key = self
        self.gone = False
        self.charged = 0

    def charge(self, count: int) -> None:
        assert count > 0
        self.charged += count

    def refund(self, count: int) -> None:
        self.charged -= count


class Bench:
    """Works that are under way, and the order in which they end."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.world = Slow()
        self.thread = BatchThread(cast("World", self.world))
        self.ended: list[str] = []
        self._nursery = nursery

    async def begin(self, client: Client, name: str) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def work() -> None:
            with scope:
                try:
                    await self.thread.work(client, BATCH, BYTES_MAX, lambda batch, bytes_max: None)
                    self.ended.append(name)
                except ClientGone:
                    self.ended.append(f"{name} was dropped")

        self._nursery.start_soon(work)
        await trio.testing.wait_all_tasks_blocked()
        return scope

    async def end(self, count: int = 1) -> None:
        for _ in range(count):
            self.world.gate.release()
            await trio.testing.wait_all_tasks_blocked()


def on_bench(body: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await body(Bench(nursery))

    trio.run(main)


def test_the_batch_of_a_client_waits_for_one_of_a_client_that_has_queued_many() -> None:
    """1, 2."""

    async def body(bench: Bench) -> None:
        many, few = Client(), Client()
        for number in range(5):
            await bench.begin(many, f"many {number}")
        await bench.end()
        for number in range(2):
            await bench.begin(few, f"few {number}")
        await bench.end(6)
        assert bench.ended == ["many 0", "many 1", "few 0", "many 2", "few 1", "many 3", "many 4"]

    on_bench(body)


def test_clients_take_turns_in_the_order_in_which_they_came() -> None:
    """2."""

    async def body(bench: Bench) -> None:
        clients = {name: Client() for name in "abc"}
        for number in range(2):
            for name, client in clients.items():
                await bench.begin(client, f"{name}{number}")
        await bench.end(6)
        assert bench.ended == ["a0", "b0", "c0", "a1", "b1", "c1"]

    on_bench(body)


def test_the_work_of_a_client_that_is_gone_is_not_begun() -> None:
    """4."""

    async def body(bench: Bench) -> None:
        one, other = Client(), Client()
        for number in range(3):
            await bench.begin(one, f"one {number}")
        await bench.begin(other, "other")
        one.gone = True
        await bench.end(2)
        assert bench.ended == ["one 0", "other", "one 1 was dropped", "one 2 was dropped"]
        assert len(bench.world.begun) == 2

    on_bench(body)


def test_a_work_that_is_cancelled_while_it_waits_holds_up_no_other() -> None:
    async def body(bench: Bench) -> None:
        client = Client()
        await bench.begin(client, "first")
        second = await bench.begin(client, "second")
        await bench.begin(client, "third")
        second.cancel()
        await bench.end(2)
        assert bench.ended == ["first", "third"]

    on_bench(body)


def test_a_work_that_is_cancelled_at_its_turn_passes_the_turn_on() -> None:
    async def body(bench: Bench) -> None:
        client = Client()
        await bench.begin(client, "first")
        second = await bench.begin(client, "second")
        await bench.begin(client, "third")
        bench.world.gate.release()
        second.cancel()
        await trio.testing.wait_all_tasks_blocked()
        await bench.end(1)
        assert bench.ended == ["first", "third"]

    on_bench(body)


def test_bytes_are_charged_before_they_are_made_and_given_back_at_the_end() -> None:
    """3."""

    async def body(bench: Bench) -> None:
        client = Client()
        seen: list[tuple[int, int]] = []

        def unpack(batch: memoryview, bytes_max: int) -> str:
            seen.append((bytes_max, client.charged))
            if bytes_max < BYTES_MAX:
                raise UnpackedTooLarge
            return "unpacked"

        bench.world.gate = trio.Semaphore(10)
        assert await bench.thread.work(client, BATCH, BYTES_MAX, unpack) == "unpacked"
        assert seen == [(count, count) for count in (FIRST_BYTES, 4 * FIRST_BYTES, 16 * FIRST_BYTES, BYTES_MAX)]
        assert client.charged == 0

    on_bench(body)


def test_bytes_that_were_unpacked_are_free_as_soon_as_an_error_is_handled() -> None:
    class Unpacked:
        pass

    found: list[weakref.ref[Unpacked]] = []

    def unpack(batch: memoryview, bytes_max: int) -> None:
        unpacked = Unpacked()
        found.append(weakref.ref(unpacked))
        raise ValueError("damaged")

    async def main() -> None:
        with pytest.raises(ValueError, match="damaged"):
            await BatchThread(threads).work(Client(), BATCH, BYTES_MAX, unpack)

    threads = cast("World", SimpleNamespace(blocking=trio.to_thread.run_sync))
    gc.disable()
    try:
        trio.run(main)
        assert [each() for each in found] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize(("error", "attempts"), [(UnpackedTooLarge, 4), (TooManyRecords, 1), (ValueError, 1)])
def test_a_batch_that_cannot_be_unpacked_costs_its_client_nothing_afterwards(
    error: type[Exception], attempts: int
) -> None:
    """3."""

    async def body(bench: Bench) -> None:
        client = Client()

        def unpack(batch: memoryview, bytes_max: int) -> None:
            raise error

        bench.world.gate = trio.Semaphore(10)
        with pytest.raises(error):
            await bench.thread.work(client, BATCH, BYTES_MAX, unpack)
        assert len(bench.world.begun) == attempts
        assert client.charged == 0
        await bench.thread.work(client, BATCH, BYTES_MAX, lambda batch, bytes_max: None)

    on_bench(body)
