"""Compares the paths through the code in docs/ARCHITECTURE.md with the calls of a running broker.

Every function that a step names must be called while a node does the work of the table. Neither the completeness of
the steps nor their order is checked.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
import trio

from gnomon.bookie.ledgers.catalog import EntryCache
from gnomon.broker.standalone import Serving, run_standalone
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.settings.settings import BookieSettings, BrokerSettings, Settings
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Durability, Unreachable
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.api import ApiKey, request_header_version
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch
from gnomon.wire.kafka.schema import ProtocolMessage, encode

sys.path.insert(0, str(Path(__file__).parent))  # for `steps`: test folders are no packages

from steps import steps

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60
LARGE_BYTES = 1_000_000
LARGE_BATCHES = 16
"""More than the two sockets of a connection can buffer, so that the broker must keep a part for later."""

Called = set[tuple[str, str]]


@cache
def _file(name: str) -> str:
    path = Path(name).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""


class Recorder:
    """Records the functions called during a block, and their callers, in this thread and in those begun later."""

    def __init__(self) -> None:
        self._called: Called | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._called is not None and event == "call":
            for code in (frame.f_code, frame.f_back.f_code if frame.f_back is not None else frame.f_code):
                self._called.add((code.co_filename, code.co_qualname))

    @contextmanager
    def recording(self, called: Called) -> Iterator[None]:
        """Adds to `called` while the block lasts."""
        found: Called = set()
        self._called = found
        try:
            yield
        finally:
            self._called = None
            called |= {(_file(name), function) for name, function in found}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    before = sys.getprofile()
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    yield recorder
    threading.setprofile(None)
    sys.setprofile(before)


def produce_request(sequence: int, payload: bytes) -> ProduceRequest:
    records = [Record(offset_delta=0, key=None, value=payload)]
    batch = build_batch(records, base_timestamp=1000, producer_id=7, producer_epoch=0, base_sequence=sequence)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch_request(offset: int, wait_ms: int, bytes_max: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    topic = FetchTopic(topic="t", partitions=[wanted])
    return FetchRequest(min_bytes=1, max_bytes=bytes_max, max_wait_ms=wait_ms, session_epoch=-1, topics=[topic])


class Client:
    """Sends requests and skips answers; uses no code of the broker except the encoder of messages."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    @classmethod
    async def connect(cls, port: int) -> Client:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        return cls(stream)

    async def send(self, message: ProtocolMessage, version: int) -> None:
        key = ApiKey(type(message).KEY or 0)
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\1x"
        tags = b"\0" if request_header_version(key, version) == 2 else b""
        frame = head + tags + encode(message, version)
        await self._stream.send_all(len(frame).to_bytes(4, "big") + frame)

    async def answer(self) -> int:
        """Waits for one answer; returns its size in bytes."""
        size = int.from_bytes(await self._exactly(4), "big")
        await self._exactly(size)
        return size

    async def ask(self, message: ProtocolMessage, version: int) -> int:
        await self.send(message, version)
        return await self.answer()

    async def produce(self, sequence: int, payload: bytes = b"v") -> int:
        return await self.ask(produce_request(sequence, payload), 9)

    async def send_fetch(self, offset: int, wait_ms: int = 10_000, bytes_max: int = 1 << 20) -> None:
        await self.send(fetch_request(offset, wait_ms, bytes_max), 11)

    async def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            chunk = await self._stream.receive_some(min(1 << 20, count - len(received)))
            assert chunk, "the broker has closed the connection"
            received += chunk
        return bytes(received)


def serve(data_dir: Path, life: Callable[[int], Awaitable[None]]) -> None:
    """Runs a real node until `life(port)` ends."""
    settings = Settings(
        data_dir=data_dir,
        broker=BrokerSettings(kafka_port=0, native_port=0),
        bookie=BookieSettings(durability=Durability.NONE),
    )

    async def main() -> None:
        with trio.fail_after(SECONDS_MAX):
            async with open_trio_world() as world, trio.open_nursery() as nursery:
                stop, served = trio.Event(), trio.Event()
                ports: list[int] = []

                def ready(serving: Serving) -> None:
                    ports.append(serving.listeners[0].port)
                    served.set()

                async def node() -> None:
                    await run_standalone(world, settings, SilentLogger(), ready=ready, stop=stop)

                nursery.start_soon(node)
                await served.wait()
                await life(ports[0])
                stop.set()

    trio.run(main)


def test_every_function_that_a_path_names_is_called(tmp_path: Path, recorder: Recorder) -> None:
    produced: Called = set()
    fetched: Called = set()
    recovered: Called = set()

    async def first_life(port: int) -> None:
        client, other = await Client.connect(port), await Client.connect(port)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic]), 7)
        await client.produce(0)  # opens the partition
        with recorder.recording(produced):
            await other.produce(1)
            await other.produce(2)
        for sequence in range(3, 3 + LARGE_BATCHES):
            await client.produce(sequence, bytes(LARGE_BYTES))
        with recorder.recording(fetched):
            for _ in range(2):
                await client.send_fetch(0)
                assert await client.answer() > 100
            await client.send_fetch(3, bytes_max=LARGE_BATCHES * LARGE_BYTES)
            await trio.sleep(0.1)
            assert await client.answer() > (LARGE_BATCHES - 1) * LARGE_BYTES
            await client.send_fetch(3 + LARGE_BATCHES)
            await other.produce(3 + LARGE_BATCHES)
            assert await client.answer() > 100
            await client.send_fetch(4 + LARGE_BATCHES)
            await client.send(ApiVersionsRequest(), 0)
            assert await client.answer() < 100
            await client.answer()

    async def second_life(port: int) -> None:
        client = await Client.connect(port)
        with recorder.recording(recovered):
            await client.produce(4 + LARGE_BATCHES)

    serve(tmp_path, first_life)
    serve(tmp_path, second_life)
    for title, called in (
        ("The path of a produced batch", produced),
        ("The path of a fetch", fetched),
        ("Recovery after kill -9", recovered),
    ):
        assert len(steps(title)) >= 10
        assert sorted(set(steps(title)) - called) == [], title


async def leader(client: WireCluster) -> WireConnection:
    """A connection to the leader of the topic's partition; waits until there is one."""
    while True:
        try:
            return await client.leader("t", 0)
        except Unreachable:
            await client.world.clock.sleep(0.1)


def test_every_function_that_the_path_to_remote_bookies_names_is_called(recorder: Recorder) -> None:
    called: Called = set()

    async def produce(client: WireCluster) -> None:
        connection = await leader(client)
        for sequence in range(20):
            await connection.request(produce_request(sequence, bytes(10_000)), 9, ProduceResponse)

    async def fetch(client: WireCluster) -> None:
        connection = await leader(client)
        for offset in range(20):
            answer = await connection.request(fetch_request(offset, 10_000, 20_000), 11, FetchResponse)
            assert len(answer.responses[0].partitions[0].records or b"") > 10_000

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1)
        await cluster.start()
        with recorder.recording(called):
            await cluster.run_client("producer", produce)
            cluster.brokers[1].kill()
            cluster.start_broker(1)
            await cluster.settled(1)
            broker = cluster.serving[1].broker
            broker.storage.entries = EntryCache(broker.storage.bookies, 50_000)
            await cluster.run_client("consumer", fetch)

    simulate(1, scenario)
    title = "A fetch from bookies in other processes"
    assert len(steps(title)) >= 10
    assert sorted(set(steps(title)) - called) == []
