"""Calls and streams as their caller sees them: cancelled, overdue, lost, refused."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
from rpc_bench import Bench, Missing, run

from gnomon.runtime.rpc import client as client_module
from gnomon.runtime.rpc.call import Call, in_task
from gnomon.runtime.rpc.errors import NotSent, RpcFailed
from gnomon.runtime.world import Unreachable
from gnomon.wire import rpc


def test_a_cancelled_caller_cancels_the_call_at_the_server() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, "keep", 1)
            await bench.until(lambda: bool(bench.kept))
            nursery.cancel_scope.cancel()
        await bench.until(lambda: bench.cancelled == [1])
        assert bench.kept[0].over
        bench.kept[0].reply("to nobody")
        assert await client.call("echo") == []

    run(main)


def test_a_caller_may_be_cancelled_in_the_turn_in_which_its_answer_arrives() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        await client.call("echo")
        async with trio.open_nursery() as nursery:
            client.send("keep", [1], b"", lambda value, view, error: nursery.cancel_scope.cancel())
            nursery.start_soon(client.call, "keep", 2)
            await bench.until(lambda: len(bench.kept) == 2)
            for call in bench.kept:  # both answers leave, and arrive, together
                call.reply()
            await trio.sleep_forever()
        assert await client.call("echo") == []

    run(main)


def test_a_call_without_an_answer_in_time_ends_as_unknown_and_is_cancelled_at_the_server() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen(), call_seconds=4.0)
        start = trio.current_time()
        with pytest.raises(Unreachable, match=r"no answer within 4.0 s.*unknown") as raised:
            await client.call("keep", 1)
        assert not isinstance(raised.value, NotSent)
        assert 4.0 <= trio.current_time() - start < 5.5
        await bench.until(lambda: bench.cancelled == [1])
        assert await client.call("echo") == []

    run(main, virtual=True)


def test_a_long_call_is_waited_for_while_the_server_is_alive() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen(), call_seconds=100.0)

        async def answer_later() -> None:
            await bench.until(lambda: bool(bench.kept))
            await trio.sleep(60)
            bench.kept[0].reply("late")

        bench.nursery.start_soon(answer_later)
        assert await client.call("keep", 1) == "late"

    run(main, virtual=True)


def test_a_call_to_an_absent_server_is_not_sent_and_the_client_connects_once_it_listens() -> None:
    async def main(bench: Bench) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        client = bench.client(port)
        for _ in range(3):
            with pytest.raises(NotSent, match=r"cannot connect to 127.0.0.1:\d+.*nothing was done"):
                await client.call("echo")
        listener = await bench.server.listen("127.0.0.1", port)
        assert listener.port == port
        assert await client.call("echo", 1) == [1]
        bench.server.close()
        bench.server = bench.new_server()
        await bench.server.listen("127.0.0.1", port)
        await trio.sleep(1)
        assert await client.call("echo", 2) == [2]

    run(main, virtual=True)


def test_a_server_that_closes_ends_every_call_once_and_as_unknown() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        outcomes: list[Exception | None] = []
        for number in range(10):
            client.send("keep", [number], b"", lambda value, view, error: bench.note(outcomes.append, error))
        await bench.until(lambda: len(bench.kept) == 10)
        bench.server.close()
        assert bench.cancelled == list(range(10))
        await bench.until(lambda: len(outcomes) == 10)
        assert all(type(error) is Unreachable and "unknown" in str(error) for error in outcomes)
        assert len({id(error) for error in outcomes}) == 10  # each with a traceback of its own

    run(main)


@pytest.mark.parametrize("how", ["lost", "overdue"])
def test_a_callback_of_a_lost_call_may_cancel_other_calls_and_call_again(how: str) -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen(), call_seconds=2.0)
        await client.call("echo")
        told: list[int] = []
        again: list[Any] = []

        def ask(number: int) -> None:
            def done(value: Any, view: memoryview, error: Exception | None) -> None:
                told.append(number)
                client.cancel(numbers[1])
                client.send("echo", [number], b"", lambda value, view, error: bench.note(again.append, error or value))

            numbers.append(client.send("keep", [number], b"", done))

        numbers: list[Any] = []
        for number in range(3):
            ask(number)
        await bench.until(lambda: len(bench.kept) == 3)
        if how == "lost":
            bench.kept[0]._connection.abort()
            bench.kept[0]._connection.ended()
        await bench.until(lambda: len(again) == 2)
        assert told == [0, 2]
        assert again == [[0], [2]]

    run(main, virtual=True)


def test_a_closed_client_ends_its_calls_and_takes_no_more() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        outcomes: list[Any] = []
        client.send("keep", [1], b"", lambda value, view, error: outcomes.append(error))
        await bench.until(lambda: bool(bench.kept))
        client.close()
        client.close()
        assert [type(error) for error in outcomes] == [Unreachable]
        with pytest.raises(NotSent, match="closed"):
            await client.call("echo")
        await bench.until(lambda: bench.cancelled == [1])

    run(main)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is the peer a gnomon"),
        (b"".join(rpc.encode([rpc.RESULT, 0, 1])), "no WELCOME"),
        (b"".join([*rpc.encode([rpc.WELCOME, 1, None]), *rpc.encode([rpc.CALL, 1, "x", []])]), "no CALL to send"),
        (b"".join([*rpc.encode([rpc.WELCOME, 1, None]), *rpc.encode([rpc.REFUSED, "too old"])]), "refused: too old"),
        (b"", "the connection ended before the first answer: is this the port of another service"),
        (b"".join(rpc.encode([rpc.WELCOME, 1, None])), "the connection is gone"),
    ],
)
def test_a_server_that_breaks_the_protocol_ends_the_calls_with_a_reason(answer: bytes, reason: str) -> None:
    async def main(bench: Bench) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def serve(peer: trio.SocketStream) -> None:
            await peer.receive_some(1)
            await peer.send_all(answer)
            await peer.aclose()

        bench.nursery.start_soon(trio.serve_listeners, serve, [listener])
        client = bench.client(listener.socket.getsockname()[1])
        with pytest.raises(Unreachable, match=reason):
            await client.call("echo", attachment=bytes(100))

    run(main)


def test_a_client_whose_server_does_not_read_keeps_bounded_memory() -> None:
    async def main(bench: Bench) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            client = bench.client(listening.getsockname()[1], unsent_bytes_max=1 << 20)
            outcomes: list[Exception | None] = []
            for _ in range(200):
                client.send("echo", [], bytes(100_000), lambda value, view, error: outcomes.append(error))
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert all(isinstance(error, NotSent) and "untaken" in str(error) for error in outcomes)
            assert len(outcomes) > 100
            start = trio.current_time()
            await trio.sleep(8)
            assert len(outcomes) == 200
            assert "nothing was received for 6 s" in str(outcomes[-1])
            assert trio.current_time() - start < 9

    run(main, virtual=True)


async def count_to(call: Call) -> None:
    for number in range(call.args[0]):
        call.item(number)
        await call.room()
    if len(call.args) > 1:
        raise Missing("the rest is missing")


def test_a_stream_delivers_its_items_in_order_and_ends_with_the_outcome_of_its_task() -> None:
    async def main(bench: Bench) -> None:
        bench.methods["count"] = in_task(bench.nursery, count_to)
        client = bench.client(await bench.listen())
        async with client.stream("count", 5_000) as items:
            assert [item async for item in items] == list(range(5_000))
        async with client.stream("count", 3, "fail") as items:
            assert [await anext(items) for _ in range(3)] == [0, 1, 2]
            for _ in range(2):
                with pytest.raises(Missing, match="the rest"):
                    await anext(items)
        with pytest.raises(RpcFailed, match="no method"):
            async with client.stream("absent") as items:
                await anext(items)

    run(main)


def test_the_end_of_the_block_cancels_the_task_of_a_stream() -> None:
    async def main(bench: Bench) -> None:
        async def for_ever(call: Call) -> None:
            try:
                call.item(1)
                await trio.sleep_forever()
            finally:
                bench.note(bench.cancelled.append, 1)

        bench.methods["for_ever"] = in_task(bench.nursery, for_ever)
        client = bench.client(await bench.listen())
        async with client.stream("for_ever") as items:
            assert await anext(items) == 1
        await bench.until(lambda: bench.cancelled == [1])
        async with client.stream("for_ever") as items:
            assert await anext(items) == 1
            client.close()
            with pytest.raises(Unreachable):
                await anext(items)
        await bench.until(lambda: bench.cancelled == [1, 1])

    run(main)


def test_a_slow_reader_delays_only_its_own_stream_and_costs_bounded_memory() -> None:
    async def main(bench: Bench) -> None:
        sent = []

        async def pour(call: Call) -> None:
            for number in range(200):
                sent.append(number)
                call.item(bytes(10_000))
                await call.room()

        bench.methods["pour"] = in_task(bench.nursery, pour)
        client = bench.client(await bench.listen())
        async with client.stream("pour") as slow, client.stream("pour") as quick:
            await anext(slow)
            assert len([item async for item in quick]) == 200
            assert await client.call("echo", 1) == [1]
            stalled = len(sent) - 200
            assert stalled * 10_000 < rpc.STREAM_WINDOW_BYTES + 20_000
            assert len([item async for item in slow]) == 199

    run(main)


def test_an_answer_without_memory_ends_its_call_and_its_effect_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(bench: Bench) -> None:
        def poor(view: memoryview) -> bytes:
            raise MemoryError

        client = bench.client(await bench.listen())
        with monkeypatch.context() as patch:
            patch.setattr(client_module, "bytes", poor, raising=False)
            with pytest.raises(
                Unreachable, match="no memory for the answer: whether the call had an effect is unknown"
            ):
                await client.call("echo", 1)
        assert await client.call("echo", 1) == [1]

    run(main)
