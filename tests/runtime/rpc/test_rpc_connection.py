"""Both ends of a connection: frames, batches of writes, limits on held calls, and the end."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from rpc_bench import HELLO, Bench, raw_client, run

from gnomon.runtime.rpc.connection import RpcConnection
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.wire import rpc
from gnomon.wire.frame_reader import RECEIVE_BYTES


@pytest.mark.parametrize("size", [0, 10, 5_000, 40_000, 3_000_000])
def test_a_call_is_answered_with_value_and_attachment(size: int) -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        attachment = random.Random(size).randbytes(size)
        args = [1, "text", b"bytes", None, [2.5, {"key": True}]]
        assert await client.exchange("echo", *args, attachment=attachment) == (args, attachment)
        assert await client.call("echo") == []

    run(main)


def test_the_buffer_of_a_partial_frame_is_freed_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    left_bytes = []
    closed = RpcConnection.closed

    async def main(bench: Bench) -> None:
        gone = trio.Event()

        def noting(connection: RpcConnection) -> None:
            closed(connection)
            left_bytes.append(len(connection.receive_buffer()))
            gone.set()

        monkeypatch.setattr(RpcConnection, "closed", noting)
        stream = await raw_client(await bench.listen(), HELLO)
        await stream.send_all((1 << 19).to_bytes(4, "big") + bytes(1 << 18))
        await stream.aclose()
        await gone.wait()

    run(main)
    assert left_bytes == [RECEIVE_BYTES]


def test_an_attachment_may_be_changed_once_send_has_returned() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        answers: dict[int, bytes] = {}
        ended = trio.Event()
        sizes = [10, 2_000, 20_000, 40_000, 100_000]

        def send_all() -> None:
            for size in sizes:
                buffer = bytearray(b"a" * size)
                client.send("echo", [size], memoryview(buffer), note)
                buffer[:] = b"b" * size

        def note(value: Any, attachment: memoryview, error: Exception | None) -> None:
            assert error is None
            answers[value[0]] = bytes(attachment)
            if len(answers) == len(sizes):
                ended.set()

        for _ in range(2):  # before there is a connection, and with one
            answers.clear()
            ended = trio.Event()
            send_all()
            assert answers == {}
            await ended.wait()
            assert answers == {size: b"a" * size for size in sizes}

    run(main)


def test_calls_of_one_turn_and_their_answers_leave_in_one_write_each(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    send = RpcConnection._send

    def counted(connection: RpcConnection) -> None:
        if connection._outgoing:
            writes.append(len(connection._outgoing))
        send(connection)

    monkeypatch.setattr(RpcConnection, "_send", counted)

    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        await client.call("echo")
        writes.clear()
        ended = trio.Event()
        answers: list[int] = []

        def done(value: Any, attachment: memoryview, error: Exception | None) -> None:
            answers.append(value[0])
            if len(answers) == 100:
                ended.set()

        for number in range(100):
            client.send("echo", [number], b"", done)
        await ended.wait()
        assert answers == list(range(100))

    run(main)
    # The first call of an idle connection does not wait for others.
    assert sum(writes) == 200
    assert len(writes) <= 4


def test_an_idle_connection_is_kept_and_one_with_a_silent_peer_is_ended() -> None:
    async def main(bench: Bench) -> None:
        port = await bench.listen()
        client = bench.client(port)
        await client.call("echo")
        first = client._connection
        silent = await raw_client(port, HELLO, [rpc.CALL, 1, "keep", [7]])
        nothing_said = await raw_client(port)
        await trio.sleep(100)
        assert bench.cancelled == [7]
        assert len(bench.log.reasons) == 2
        assert "nothing was received" in bench.log.reasons[0]
        await client.call("echo")
        assert client._connection is first
        for peer in (silent, nothing_said):
            await peer.aclose()

    run(main, virtual=True)


def test_a_frame_over_the_limit_fails_only_its_own_call() -> None:
    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(frame_bytes_max=100_000)
        client = bench.client(await bench.listen(), frame_bytes_max=100_000)
        with pytest.raises(RpcFailed, match=r"the call has \d+ bytes, 100000 are allowed"):
            await client.call("echo", attachment=bytes(100_000 + 9))
        with pytest.raises(RpcFailed, match=r"the answer has \d+ bytes, 100000 are allowed"):
            await client.call("big", 100_000)
        assert await client.call("big", 90_000) is None

    run(main)


def test_a_peer_that_does_not_read_costs_bounded_memory_and_delays_no_other_peer() -> None:
    limit = 1 << 20

    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(connection_bytes_max=limit)
        port = await bench.listen()
        peer = await raw_client(port, HELLO)
        asked = b"".join(b"".join(rpc.encode([rpc.CALL, number, "big", [100_000]])) for number in range(2000))
        with trio.move_on_after(1):
            await peer.send_all(asked)
        other = bench.client(port)
        await other.call("echo")
        (connection,) = [connection for connection in bench.server._connections if connection.unsent_bytes]
        assert connection.held
        assert connection.unsent_bytes < limit + 200_000
        counts = [0]

        async def read() -> None:
            while counts[0] < 2000 * 100_000:
                counts[0] += len(await peer.receive_some(1 << 20))

        await read()  # the held calls continue

    run(main)


def test_an_answer_that_is_sent_at_once_makes_room_for_waiting_calls() -> None:
    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(connection_bytes_max=1000)
        start = trio.current_time()
        client = bench.client(await bench.listen())
        for number in range(8):
            client.send("keep", [number], b"", lambda *_: None)
        for number in range(8):
            await bench.until(lambda: len(bench.kept) > number)  # noqa: B023 - awaited within the round
            if number >= 3:
                bench.kept[number - 3].reply(None, bytearray(100_000))
        assert trio.current_time() - start < 1  # not only after a ping

    run(main, virtual=True)


def test_a_call_that_charges_for_its_memory_holds_up_its_connection_until_its_answer() -> None:
    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(connection_bytes_max=10_000)
        client = bench.client(await bench.listen())
        for number in range(2):
            client.send("keep", [number], b"", lambda *_: None)
        await bench.until(lambda: len(bench.kept) == 2)
        (connection,) = bench.server._connections
        bench.kept[0].charge(10_000)
        client.send("keep", [2], b"", lambda *_: None)
        await bench.until(lambda: len(bench.kept) == 3)  # it was charged for after this call was read
        assert connection.held
        client.send("keep", [3], b"", lambda *_: None)
        await trio.sleep(0.1)
        assert len(bench.kept) == 3
        bench.kept[0].reply()
        await bench.until(lambda: len(bench.kept) == 4)

    run(main, virtual=True)


def test_calls_start_no_tasks() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        await client.call("echo")
        ended = trio.Event()
        left = [500]

        def done(value: Any, view: memoryview, error: Exception | None) -> None:
            left[0] -= 1
            if left[0]:
                client.send("echo", [], b"", done)
            else:
                ended.set()

        tasks = trio.lowlevel.current_statistics().tasks_living
        client.send("echo", [], b"", done)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        await ended.wait()
        assert trio.lowlevel.current_statistics().tasks_living == tasks

    run(main)
