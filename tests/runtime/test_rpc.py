"""RPC over real sockets; where time has to pass it is virtual, and passes when nothing moves."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest
import trio
import trio.testing

from gnomon.runtime.rpc_client import RpcClient
from gnomon.runtime.rpc_connection import RpcConnection
from gnomon.runtime.rpc_errors import ErrorTable, NotSent, RpcFailed, RpcRefused
from gnomon.runtime.rpc_server import CALLS_MAX, Call, RpcServer, in_task
from gnomon.runtime.trio_world import TrioWorld, open_trio_world
from gnomon.runtime.world import Unreachable
from gnomon.wire import rpc


class Fenced(Exception):
    def __init__(self, ledger: int, session: int) -> None:
        super().__init__(f"ledger {ledger} is fenced by session {session}")
        self.ledger, self.session = ledger, session


class Missing(Exception):
    pass


class MissingKey(Missing):
    pass


ERRORS = ErrorTable({Fenced: ("ledger", "session"), Missing: ()})


class Log:
    """Keeps what a server logs."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def bind(self, **fields: object) -> Log:
        return self

    def warning(self, event: str, **fields: object) -> None:
        self.reasons.append(str(fields["reason"]))

    def debug(self, event: str, **fields: object) -> None:
        pytest.fail(event)

    info = error = exception = debug


class Bench:
    """A server with the methods that tests need, and clients of it."""

    def __init__(self, world: TrioWorld, nursery: trio.Nursery) -> None:
        self.world = world
        self.nursery = nursery
        self.log = Log()
        self.kept: list[Call] = []
        self.told: list[Any] = []
        self.cancelled: list[int] = []
        self.changed = trio.Event()
        self.methods: dict[str, Callable[[Call], None]] = {
            "echo": lambda call: call.reply(call.args, call.attachment),
            "keep": self.keep,
            "tell": lambda call: self.note(self.told.append, [*call.args, bytes(call.attachment)]),
            "fence": self.fence,
            "big": lambda call: call.reply(None, bytes(call.args[0])),
        }
        self.server = self.new_server()

    def new_server(self, **options: Any) -> RpcServer:
        return RpcServer(self.world, "test", self.methods, ERRORS, self.log, **options)

    async def listen(self) -> int:
        self.nursery.start_soon(self.server.run)
        return (await self.server.listen("127.0.0.1", 0)).port

    def client(self, port: int, service: str = "test", **options: Any) -> RpcClient:
        client = RpcClient(self.world, "127.0.0.1", port, service, ERRORS, **options)
        self.nursery.start_soon(client.run)
        return client

    def keep(self, call: Call) -> None:
        call.cancelled = lambda: self.note(self.cancelled.append, call.args[0])
        self.note(self.kept.append, call)

    def fence(self, call: Call) -> None:
        raise Fenced(*call.args)

    def note(self, add: Callable[[Any], None], what: Any) -> None:
        add(what)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed = trio.Event()
            await self.changed.wait()


def run(main: Callable[[Bench], Awaitable[None]], *, virtual: bool = False) -> None:
    async def bounded() -> None:
        with trio.fail_after(600 if virtual else 20):
            async with open_trio_world() as world, trio.open_nursery() as nursery:
                await main(Bench(world, nursery))
                nursery.cancel_scope.cancel()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0.02) if virtual else None)


async def raw_client(port: int, *frames: list[Any]) -> trio.SocketStream:
    """A peer that says what it likes."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    for head in frames:
        await stream.send_all(b"".join(rpc.encode(head)))
    return stream


async def frames_of(stream: trio.SocketStream) -> list[list[Any]]:
    """All frames until the peer ends the stream."""
    data = bytearray()
    try:
        while some := await stream.receive_some(1 << 16):
            data += some
    except trio.BrokenResourceError:
        pass
    frames, at = [], 0
    while at < len(data):
        size, head_bytes = struct.unpack_from(">II", data, at)
        frames.append(msgpack.unpackb(data[at + 8 : at + 8 + head_bytes]))
        at += 4 + size
    return frames


HELLO = [rpc.HELLO, rpc.MAGIC, [1], "test", None]


@pytest.mark.parametrize("size", [0, 10, 5_000, 40_000, 3_000_000])
def test_a_call_is_answered_with_value_and_attachment(size: int) -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        attachment = random.Random(size).randbytes(size)
        args = [1, "text", b"bytes", None, [2.5, {"key": True}]]
        assert await client.exchange("echo", *args, attachment=attachment) == (args, attachment)
        assert await client.call("echo") == []

    run(main)


def test_what_was_given_to_a_call_may_be_changed_once_send_has_returned() -> None:
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


def test_errors_of_the_table_come_back_as_what_they_were() -> None:
    async def main(bench: Bench) -> None:
        def missing(call: Call) -> None:
            raise MissingKey("no key 'a'")

        def strange(call: Call) -> None:
            call.fail(OSError("the disk is gone"))

        bench.methods |= {"missing": missing, "strange": strange}
        client = bench.client(await bench.listen())
        with pytest.raises(Fenced, match="ledger 7 is fenced by session 9") as fenced:
            await client.call("fence", 7, 9)
        assert (fenced.value.ledger, fenced.value.session) == (7, 9)
        with pytest.raises(Missing, match="no key 'a'"):
            await client.call("missing")
        with pytest.raises(RpcFailed, match="OSError: the disk is gone"):
            await client.call("strange")
        with pytest.raises(RpcFailed, match="service 'test' has no method 'absent'"):
            await client.call("absent")

    run(main)


def test_an_error_whose_fields_are_others_elsewhere_keeps_its_text() -> None:
    for fields in ([1], [1, 2, 3]):
        assert repr(ERRORS.decode("Fenced", fields, "text")) == repr(RpcFailed("Fenced: text"))
    assert repr(ERRORS.decode("Newer", [], "text")) == repr(RpcFailed("Newer: text"))


def test_a_tell_arrives_in_order_with_calls_and_has_no_answer() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        client.tell("tell", 1, attachment=b"x")
        await client.call("echo")
        assert bench.told == [[1, b"x"]]
        client.tell("fence", 1, 2)
        client.tell("absent")
        client.tell("tell", 2)
        assert await client.call("echo") == []
        assert len(bench.told) == 2

    run(main)


def test_calls_are_answered_in_any_order_and_late_answers_to_nobody() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen())
        ended: list[int] = []

        async def ask(number: int) -> None:
            assert await client.call("keep", number) == number * 2
            ended.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, number)
            await bench.until(lambda: len(bench.kept) == 3)
            for call in sorted(bench.kept, key=lambda call: -call.args[0]):
                call.reply(call.args[0] * 2)
                await client.call("echo")
        assert ended == [2, 1, 0]
        bench.kept[0].reply("again")
        assert await client.call("echo") == []

    run(main)


def test_a_caller_that_is_cancelled_cancels_the_call_on_the_other_side() -> None:
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


def test_a_caller_may_be_cancelled_in_the_very_turn_in_which_its_answer_comes() -> None:
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


def test_a_call_that_is_not_answered_in_time_ends_as_unknown_and_is_cancelled_there() -> None:
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


def test_a_client_with_work_that_takes_long_waits_for_it_as_long_as_the_server_is_there() -> None:
    async def main(bench: Bench) -> None:
        client = bench.client(await bench.listen(), call_seconds=100.0)

        async def answer_later() -> None:
            await bench.until(lambda: bool(bench.kept))
            await trio.sleep(60)
            bench.kept[0].reply("late")

        bench.nursery.start_soon(answer_later)
        assert await client.call("keep", 1) == "late"

    run(main, virtual=True)


def test_an_idle_connection_is_kept_and_one_whose_peer_says_nothing_is_ended() -> None:
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
        assert "nothing was heard" in bench.log.reasons[0]
        await client.call("echo")
        assert client._connection is first
        for peer in (silent, nothing_said):
            await peer.aclose()

    run(main, virtual=True)


def test_nobody_there_is_certain_and_the_client_connects_once_somebody_is() -> None:
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
def test_whoever_is_told_of_a_loss_may_cancel_the_others_and_call_again(how: str) -> None:
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
    ("service", "cluster", "reason"),
    [
        ("bookie", None, "asks for service 'bookie'; this is service 'test' of cluster 'ours'"),
        ("test", "theirs", "of cluster 'theirs'; this is service 'test' of cluster 'ours'"),
    ],
)
def test_a_server_that_was_not_meant_refuses_and_says_both_sides(service: str, cluster: str, reason: str) -> None:
    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(cluster="ours")
        port = await bench.listen()
        client = bench.client(port, service, cluster=cluster)
        for _ in range(2):
            with pytest.raises(RpcRefused, match=reason) as raised:
                await client.call("keep", 1)
            assert "nothing was done" in str(raised.value)
        assert bench.kept == []
        for fitting in ("ours", None):
            assert await bench.client(port, cluster=fitting).call("echo") == []

    run(main)


def test_a_client_of_another_protocol_version_is_refused() -> None:
    async def main(bench: Bench) -> None:
        port = await bench.listen()
        for hello, reason in [
            ([rpc.HELLO, "gnomon", [7, "x"], "test", None], "speaks protocol versions [7, 'x']"),
            ([rpc.HELLO, "gnocchi", [1], "test", None], "does not speak gnomon's protocol"),
        ]:
            peer = await raw_client(port, hello, [rpc.CALL, 1, "keep", [1]])
            ((kind, text),) = await frames_of(peer)
            assert kind == rpc.REFUSED
            assert reason in text
            assert "versions [1]" in text
        assert bench.kept == []

    run(main)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"GET / HTTP/1.1\r\n\r\n"], "HTTP"),
        ([[rpc.CALL, 1, "keep", [1]]], "no HELLO"),
        ([HELLO, HELLO], "no HELLO to send"),
        ([HELLO, [rpc.RESULT, 1, None]], "no RESULT to send"),
        ([HELLO, [rpc.CALL, 1, "keep", [1]], [rpc.CALL, 1, "keep", [1]]], "a call 1 already"),
        ([HELLO, [rpc.MORE, 1, -5]], "MORE with -5"),
        ([HELLO, [99]], "newer gnomon"),
        ([HELLO, b"\xff\xff\xff\xff"], "declares 4294967295 bytes"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_why_and_nobody_else_notices(frames: list[Any], reason: str) -> None:
    async def main(bench: Bench) -> None:
        port = await bench.listen()
        client = bench.client(port)
        await client.call("echo")
        peer = await raw_client(port)
        for frame in frames:
            await peer.send_all(frame if isinstance(frame, bytes) else b"".join(rpc.encode(frame)))
        kind, text = (await frames_of(peer))[-1]
        assert kind == rpc.REFUSED
        assert reason in text
        assert len(bench.log.reasons) == 1
        assert reason in bench.log.reasons[0]
        assert await client.call("echo", 1) == [1]
        assert bench.cancelled == [1] * len(bench.kept)

    run(main)


def test_garbage_stops_no_server() -> None:
    async def main(bench: Bench) -> None:
        port = await bench.listen()
        client = bench.client(port)
        stream = random.Random(0)
        hello = b"".join(rpc.encode(HELLO))
        for _ in range(150):
            frames = [hello] if stream.random() < 0.8 else []
            for _ in range(stream.randint(1, 5)):
                kind = stream.randrange(-1, 16)
                fields = [stream.choice([0, 1, -1, "echo", b"x", [], [1], None]) for _ in range(stream.randint(0, 4))]
                data = bytearray(b"".join(rpc.encode([kind, *fields], stream.randbytes(stream.randint(0, 30)))))
                if stream.random() < 0.3:
                    data[stream.randrange(len(data))] = stream.randrange(256)
                frames.append(bytes(data))
            peer = await raw_client(port)
            await peer.send_all(b"".join(frames))
            await peer.aclose()
        assert await client.call("echo", 1) == [1]

    run(main)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is the peer a gnomon"),
        (b"".join(rpc.encode([rpc.RESULT, 0, 1])), "no WELCOME"),
        (b"".join([*rpc.encode([rpc.WELCOME, 1, None]), *rpc.encode([rpc.CALL, 1, "x", []])]), "no CALL to send"),
        (b"".join([*rpc.encode([rpc.WELCOME, 1, None]), *rpc.encode([rpc.REFUSED, "too old"])]), "refused: too old"),
        (b"", "the connection is gone"),
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


def test_frames_over_the_limit_are_errors_of_their_call_alone() -> None:
    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(frame_bytes_max=100_000)
        client = bench.client(await bench.listen(), frame_bytes_max=100_000)
        with pytest.raises(RpcFailed, match=r"the call has \d+ bytes, 100000 are allowed"):
            await client.call("echo", attachment=bytes(100_000 + 9))
        with pytest.raises(RpcFailed, match=r"the answer has \d+ bytes, 100000 are allowed"):
            await client.call("big", 100_000)
        assert await client.call("big", 90_000) is None

    run(main)


def test_a_peer_that_does_not_read_costs_bounded_memory_and_nobody_elses_time() -> None:
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

        await read()  # what was held goes on

    run(main)


def test_calls_beyond_what_a_connection_may_have_in_flight_wait_in_the_socket() -> None:
    async def main(bench: Bench) -> None:
        port = await bench.listen()
        client = bench.client(port)
        outcomes: list[Any] = []
        for number in range(CALLS_MAX + 10):
            client.send("keep", [number], b"", lambda value, view, error: bench.note(outcomes.append, error))
        await bench.until(lambda: len(bench.kept) == CALLS_MAX)
        assert await bench.client(port).call("echo") == []
        assert len(bench.kept) == CALLS_MAX
        for call in bench.kept[:20]:
            call.reply()
        await bench.until(lambda: len(bench.kept) == CALLS_MAX + 10 and len(outcomes) == 20)
        assert outcomes == [None] * 20

    run(main)


def test_an_answer_that_leaves_at_once_makes_room_for_the_calls_that_wait() -> None:
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
        assert trio.current_time() - start < 1  # not first by a ping

    run(main, virtual=True)


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
            assert "nothing was heard for 6 s" in str(outcomes[-1])
            assert trio.current_time() - start < 9

    run(main, virtual=True)


# --- streams and tasks -------------------------------------------------------------------------------------------


async def count_to(call: Call) -> None:
    for number in range(call.args[0]):
        call.item(number)
        await call.room()
    if len(call.args) > 1:
        raise Missing("the rest is missing")


def test_a_stream_delivers_its_items_in_order_and_ends_as_its_task_does() -> None:
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


def test_a_slow_reader_holds_up_its_stream_alone_and_costs_bounded_memory() -> None:
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


def test_a_task_answers_its_call_and_its_unknown_errors_are_bugs() -> None:
    async def main(bench: Bench) -> None:
        async def length(call: Call) -> int:
            await trio.lowlevel.checkpoint()
            if not call.attachment:
                raise Missing("no attachment")
            return len(call.attachment)

        bench.methods["length"] = in_task(bench.nursery, length)
        client = bench.client(await bench.listen())
        assert await client.call("length", attachment=b"12345") == 5
        with pytest.raises(Missing):
            await client.call("length")

    run(main)


def test_a_call_cancelled_before_its_task_began_is_not_worked_on() -> None:
    async def main(bench: Bench) -> None:
        worked: list[int] = []

        async def work(call: Call) -> None:
            await trio.lowlevel.checkpoint()
            worked.append(call.args[0])

        bench.methods["work"] = in_task(bench.nursery, work)
        port = await bench.listen()
        peer = await raw_client(port, HELLO)
        await peer.send_all(
            b"".join(b"".join(rpc.encode(head)) for head in ([rpc.CALL, 1, "work", [1]], [rpc.CANCEL, 1]))
        )  # both arrive in one turn
        await peer.send_eof()
        await frames_of(peer)
        assert await bench.client(port).call("work", 2) is None
        assert worked == [2]

    run(main)


def test_no_call_and_no_connection_is_a_task() -> None:
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
