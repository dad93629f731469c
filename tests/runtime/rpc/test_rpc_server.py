"""Methods and tasks that answer calls, and peers that are refused."""

from __future__ import annotations

import random
import struct
import time
from typing import Any

import pytest
import trio
from rpc_bench import HELLO, Bench, Missing, frames_of, raw_client, run

from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.runtime.rpc import call as call_module
from gnomon.runtime.rpc.call import Call, in_task
from gnomon.runtime.rpc.errors import RpcFailed, RpcRefused
from gnomon.runtime.rpc.server import CALLS_MAX, WAITING_MAX, ServerConnection
from gnomon.runtime.rpc.stream import CallNumber
from gnomon.runtime.world import Unreachable
from gnomon.wire import rpc


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


def test_calls_are_answered_in_any_order_and_a_second_answer_is_dropped() -> None:
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


@pytest.mark.parametrize(
    ("service", "cluster", "reason"),
    [
        ("bookie", None, "asks for service 'bookie'; this is service 'test' of cluster 'ours'"),
        ("test", "theirs", "of cluster 'theirs'; this is service 'test' of cluster 'ours'"),
    ],
)
def test_a_server_of_another_service_or_cluster_refuses_and_names_both(service: str, cluster: str, reason: str) -> None:
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
        ([HELLO, [rpc.CALL, 1, "m" * 1_900_000, []]], "1900009 bytes, 1048576 are allowed"),
        ([HELLO, [rpc.CALL, 1, "m" * 900_000, []]], "the name of a method has more than 1024 bytes"),
        ([HELLO, [rpc.CALL, 1, "keep", [[0] * 5_001]]], "5001 exceeds"),
        ([[rpc.HELLO, "gnomon", [1], "s" * 60_000_000, None]], "declares 60000021 bytes, 1024 are allowed"),
    ],
)
def test_a_peer_that_breaks_the_protocol_gets_the_reason_and_no_other_client_is_affected(
    frames: list[Any], reason: str
) -> None:
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


def test_garbage_does_not_stop_a_server() -> None:
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


def test_calls_beyond_the_limit_in_flight_wait_in_the_socket() -> None:
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


def test_calls_beyond_the_share_of_a_turn_let_other_connections_pass() -> None:  # 5
    async def main(bench: Bench) -> None:
        order: list[str] = []

        def slow(call: Call) -> None:
            time.sleep(SHARE_SECONDS)
            order.append(call.args[0])
            call.reply()

        bench.methods["slow"] = slow
        port = await bench.listen()
        busy, other = bench.client(port), bench.client(port)
        for client in (busy, other):
            await client.call("echo")
        outcomes: list[Any] = []
        for number in range(50):
            busy.send("slow", [f"busy {number}"], b"", lambda value, view, error: bench.note(outcomes.append, error))
        await bench.until(lambda: bool(order))
        await other.call("slow", "other")
        assert len(order) < 25, "it was served between the calls of the busy connection"
        await bench.until(lambda: len(outcomes) == 50)
        assert [name for name in order if name != "other"] == [f"busy {number}" for number in range(50)]

    run(main)


def test_calls_that_are_set_aside_delay_no_others_and_too_many_are_refused() -> None:
    async def main(bench: Bench) -> None:
        def wait(call: Call) -> None:
            call.set_aside()
            bench.keep(call)

        bench.methods["wait"] = wait
        port = await bench.listen()
        client = bench.client(port)

        def send(method: str, count: int) -> list[CallNumber]:
            return [client.send(method, [number], b"", lambda *_: None) for number in range(count)]

        first, *_ = send("wait", WAITING_MAX)
        assert await client.call("echo") == []
        assert len(bench.kept) == WAITING_MAX
        with pytest.raises(RpcFailed, match=f"{WAITING_MAX} calls of one connection wait already: ask again later"):
            await client.call("wait", 0)
        bench.kept[-1].reply()
        client.cancel(first)
        send("wait", 3)
        assert await client.call("echo") == []
        assert len(bench.kept) == WAITING_MAX + 2
        send("keep", CALLS_MAX + 10)
        await bench.until(lambda: len(bench.kept) == WAITING_MAX + 2 + CALLS_MAX)
        assert await bench.client(port).call("echo") == []
        assert len(bench.kept) == WAITING_MAX + 2 + CALLS_MAX

    run(main)


def test_a_task_answers_its_call_with_its_result_or_its_error() -> None:
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


@pytest.mark.parametrize("in_a_task", [False, True])
def test_a_call_without_memory_ends_its_connection_and_its_effect_is_unknown(in_a_task: bool) -> None:
    async def main(bench: Bench) -> None:
        async def poor(call: Call) -> None:
            await trio.lowlevel.checkpoint()
            raise MemoryError

        def poor_at_once(call: Call) -> None:
            raise MemoryError

        bench.methods["poor"] = in_task(bench.nursery, poor) if in_a_task else poor_at_once
        port = await bench.listen()
        client, other = bench.client(port), bench.client(port)
        assert await other.call("echo") == []
        with pytest.raises(Unreachable, match="out of memory: whether the call had an effect is unknown"):
            await client.call("poor")
        assert await client.call("echo") == []
        assert await other.call("echo", 1) == [1]
        assert bench.log.reasons == ["out of memory"]

    run(main)


def test_a_call_whose_copy_finds_no_memory_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(bench: Bench) -> None:
        async def length(call: Call) -> int:
            return len(call.attachment)

        def poor(given: memoryview) -> bytes:
            raise MemoryError

        bench.methods["length"] = in_task(bench.nursery, length)
        port = await bench.listen()
        with monkeypatch.context() as patch:
            patch.setattr(call_module, "bytes", poor, raising=False)
            with pytest.raises(Unreachable, match="out of memory"):
                await bench.client(port).call("length", attachment=b"12345")
        assert await bench.client(port).call("length", attachment=b"12345") == 5

    run(main)


def test_a_call_cancelled_before_its_task_began_is_not_executed() -> None:
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


def test_the_connection_with_the_most_of_an_unfinished_frame_is_ended() -> None:
    async def main(bench: Bench) -> None:
        bench.server = bench.new_server(unfinished_bytes_max=1_000_000)
        port = await bench.listen()
        peers = [await raw_client(port, HELLO) for _ in range(3)]
        begun = struct.pack(">II", 2_000_000, 10)
        for peer, size in zip(peers, (300_000, 600_000, 300_000), strict=True):
            await peer.send_all(begun + bytes(size))
        welcome, (kind, text) = await frames_of(peers[1])
        assert (welcome[0], kind) == (rpc.WELCOME, rpc.REFUSED)
        assert "1000000 are allowed" in text
        assert await bench.client(port).call("echo") == []
        for peer in (peers[0], peers[2]):
            await peer.send_all(bytes(1000))

    run(main)


def test_a_connection_beyond_the_limit_is_refused_with_the_reason() -> None:
    class Two:
        """Takes two connections."""

        def __init__(self) -> None:
            self.taken: set[ServerConnection] = set()

        def take(self, connection: ServerConnection) -> str | None:
            if len(self.taken) == 2:
                return f"two clients are connected already, and not {connection.address}"
            self.taken.add(connection)
            return None

        def give_back(self, connection: ServerConnection) -> None:
            self.taken.discard(connection)

    async def main(bench: Bench) -> None:
        limits = Two()
        bench.server = bench.new_server(limits=limits)
        port = await bench.listen()
        first = bench.client(port)
        assert await first.call("echo") == []
        second = await raw_client(port, HELLO)
        await second.receive_some(1)
        ((kind, text),) = await frames_of(await raw_client(port))
        assert (kind, text) == (rpc.REFUSED, "two clients are connected already, and not 127.0.0.1")
        assert len(limits.taken) == 2
        assert await first.call("echo") == []

    run(main)
