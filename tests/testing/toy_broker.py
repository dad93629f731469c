"""A Kafka broker of one partition in some 150 lines, to test the harness: correct, or with one bug of `Bug`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import trio

from gnomon.runtime.world import Connection, DiskFailed, Durability, WorldError
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.storms.kafka.log_scenario import LogScenario
from gnomon.wire.kafka.api import APIS, ApiKey, request_header_version
from gnomon.wire.kafka.batch import parse_batch, patched_prefix
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.frame import KafkaFrameReader, parse_request_header, response_prefix
from gnomon.wire.kafka.messages import cluster, fetch, positions, produce
from gnomon.wire.kafka.schema import ProtocolMessage, decode, encode


class Bug(Enum):
    ACK_BEFORE_SYNC = "acknowledges before the sync"
    NO_DEDUPLICATION = "appends a retry again"
    FORGETS_PRODUCERS = "forgets sequences at a restart"
    READ_BEFORE_SYNC = "serves what is not durable"
    NOT_SYNCED = "opens its store without syncing"


class ToyBroker:
    def __init__(self, world: SimulatedWorld, bug: Bug | None, nursery: trio.Nursery) -> None:
        self.world = world
        self.bug = bug
        self.nursery = nursery
        self.error: WorldError | None = None
        self.connections: list[Connection] = []
        durability = Durability.NONE if bug is Bug.NOT_SYNCED else Durability.SYNCED
        self.store = world.disk.open_environment(
            Path("/data"), databases=["log"], map_bytes=2**26, durability=durability
        )
        self.log = self.store.databases["log"]
        self.next_offset = 0
        self.sequences: dict[int, dict[int, int]] = {}
        self.next_sequence: dict[int, int] = {}
        self.crashed = trio.Event()
        with self.store.read() as transaction:
            for key, value in transaction.cursor(self.log):
                self.note(bytes(value), int.from_bytes(key, "big"))
        self.durable_end = self.next_offset
        self.producer_id = world.random("producer ids").randrange(2**40)

    def note(self, data: bytes, base_offset: int) -> None:
        header = parse_batch(memoryview(data))
        self.next_offset = base_offset + header.records_count
        self.next_sequence[header.producer_id] = header.base_sequence + header.records_count
        if self.bug is not Bug.NO_DEDUPLICATION and (
            self.bug is not Bug.FORGETS_PRODUCERS or hasattr(self, "durable_end")
        ):
            self.sequences.setdefault(header.producer_id, {})[header.base_sequence] = base_offset

    def append(self, data: bytes, answer: Callable[[int, int], None]) -> None:
        header = parse_batch(memoryview(data))
        known = self.sequences.get(header.producer_id, {})
        offset = known.get(header.base_sequence)
        if offset is None:
            expected = self.next_sequence.get(header.producer_id, 0)
            if expected != header.base_sequence and self.bug not in (Bug.NO_DEDUPLICATION, Bug.FORGETS_PRODUCERS):
                return answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
            offset = self.next_offset
            self.note(data, offset)
        data = patched_prefix(header, offset, 0) + data[16:]
        end = offset + header.records_count

        def put(transaction: Any) -> bool:
            """False if the previous batch is missing: its group failed, and the disk had space again for this one."""
            cursor = transaction.cursor(self.log)
            stored = 0
            if cursor.last():
                stored = int.from_bytes(cursor.key(), "big") + parse_batch(memoryview(cursor.value())).records_count
            return offset < stored or (offset == stored and cursor.put(offset.to_bytes(8, "big"), data))

        def done(stored: bool | None, error: WorldError | None) -> None:
            if not stored:  # the noted batch is not stored: start again from the disk
                self.error = error
                self.crashed.set()
            else:
                self.durable_end = max(self.durable_end, end)
            if self.bug is not Bug.ACK_BEFORE_SYNC and stored:
                answer(0, offset)

        # A retry waits for a commit too: the first attempt may still be in progress.
        self.store.submit(put, done)
        if self.bug is Bug.ACK_BEFORE_SYNC:
            answer(0, offset)
        return None

    def read(self, offset: int) -> bytes:
        found = b""
        with self.store.read() as transaction:
            cursor = transaction.cursor(self.log)
            if cursor.set_range((offset + 1).to_bytes(8, "big")):
                cursor.prev()
            else:
                cursor.last()
            for key, value in cursor:
                if self.bug is not Bug.READ_BEFORE_SYNC and int.from_bytes(key, "big") >= self.durable_end:
                    break
                found += bytes(value)
        return found

    def handle(self, request: ProtocolMessage, answer: Callable[[ProtocolMessage], None]) -> None:
        if isinstance(request, cluster.MetadataRequest):
            partition = cluster.MetadataResponsePartition(partition_index=0, leader_id=1)
            topic = cluster.MetadataResponseTopic(name="toy", partitions=[partition])
            broker = cluster.MetadataResponseBroker(node_id=1, host="broker", port=9092)
            answer(cluster.MetadataResponse(brokers=[broker], topics=[topic]))
        elif isinstance(request, produce.InitProducerIdRequest):
            self.producer_id += 1
            answer(produce.InitProducerIdResponse(producer_id=self.producer_id))
        elif isinstance(request, produce.ProduceRequest):

            def produced(code: int, offset: int) -> None:
                partition = produce.PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
                topic = produce.TopicProduceResponse(name="toy", partition_responses=[partition])
                answer(produce.ProduceResponse(responses=[topic]))

            self.append(bytes(request.topic_data[0].partition_data[0].records or b""), produced)
        elif isinstance(request, positions.ListOffsetsRequest):
            earliest = request.topics[0].partitions[0].timestamp == -2
            found = positions.ListOffsetsPartitionResponse(offset=0 if earliest else self.durable_end)
            answer(
                positions.ListOffsetsResponse(
                    topics=[positions.ListOffsetsTopicResponse(name="toy", partitions=[found])]
                )
            )
        elif isinstance(request, fetch.FetchRequest):
            self.nursery.start_soon(self.fetch, request.topics[0].partitions[0].fetch_offset, answer)

    async def fetch(self, offset: int, answer: Callable[[ProtocolMessage], None]) -> None:
        if offset >= self.durable_end:
            await self.world.clock.sleep(0.1)
        data = self.read(offset) if not self.crashed.is_set() else b""
        end = self.next_offset if self.bug is Bug.READ_BEFORE_SYNC else self.durable_end
        part = fetch.PartitionData(high_watermark=end, records=data)
        answer(fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="toy", partitions=[part])]))


class ToyConnection:
    def __init__(self, broker: ToyBroker, connection: Connection) -> None:
        self.broker = broker
        self.connection = connection
        broker.connections.append(connection)
        self.frames = KafkaFrameReader(2**24)
        self.answers: list[list[bytes | None]] = []
        self.drained = self.closed = lambda: None
        self.receive_buffer = self.frames.receive_buffer

    def received(self, count: int) -> None:
        self.frames.received(count)
        while (frame := self.frames.next_frame()) is not None:
            header = parse_request_header(frame, lambda key, version: request_header_version(key, version) == 2)
            key, version = ApiKey(header.api_key), header.api_version
            request, _ = decode(APIS[key].request, version, frame, header.body_start)
            slot: list[bytes | None] = [None]
            self.answers.append(slot)
            flexible = version >= APIS[key].flexible_since

            def answer(
                message: ProtocolMessage,
                slot: Any = slot,
                number: int = header.correlation_id,
                flexible: bool = flexible,
                version: int = version,
            ) -> None:
                body = encode(message, version)
                slot[0] = response_prefix(len(body), number, flexible) + body
                while self.answers and self.answers[0][0] is not None:
                    self.connection.write([self.answers.pop(0)[0] or b""])

            self.broker.handle(request, answer)


def toy_node(bug: Bug | None) -> Callable[[SimulatedWorld], Any]:
    async def node(world: SimulatedWorld) -> None:
        while True:
            async with trio.open_nursery() as nursery:
                broker = ToyBroker(world, bug, nursery)
                listener = await world.network.listen("", 9092, lambda c, broker=broker: ToyConnection(broker, c))
                await broker.crashed.wait()
                nursery.cancel_scope.cancel()
            world.logger.warning("store failed")
            if isinstance(broker.error, DiskFailed):
                raise broker.error
            listener.close()
            for connection in broker.connections:
                connection.abort()
            broker.store.close()

    return node


def toy_scenario(bug: Bug | None = None) -> LogScenario:
    return LogScenario({"broker": toy_node(bug)}, [("broker", 9092)], topic="toy")
