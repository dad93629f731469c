"""The rules of Produce with their error codes, in every version, through a whole broker."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from gnomon.broker.kafka import produce
from gnomon.runtime.metrics import COUNTERS
from gnomon.runtime.settings.settings import BrokerSettings
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest
from gnomon.wire.kafka.messages.produce import InitProducerIdRequest
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch

VERSIONS = range(3, 14)


def _batch(count: int = 1, value: bytes = b"v", **fields: Any) -> bytes:
    records = [Record(offset_delta=number, key=None, value=value) for number in range(count)]
    return build_batch(records, base_timestamp=1, **fields)


def _with(at: int, data: bytes) -> bytes:
    """A batch with replaced bytes that its checksum does not cover, or whose checksum is never checked."""
    batch = bytearray(_batch())
    batch[at : at + len(data)] = data
    return bytes(batch)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_is_appended_in_every_version(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        for acks, offset in ((-1, 0), (1, 2)):
            produced = await client.produce("t", _batch(2), acks=acks, version=version)
            assert (produced.error_code, produced.base_offset) == (0, offset)
            assert produced.log_append_time_ms == -1
            assert produced.log_start_offset == (0 if version >= 5 else -1)

    simulate_broker(scenario)


REFUSED = {
    "an empty field": (b"", ErrorCode.INVALID_RECORD),
    "no records": (None, ErrorCode.INVALID_RECORD),
    "two batches": (_batch() + _batch(), ErrorCode.INVALID_RECORD),
    "a cut batch": (_batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (_batch()[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    "an old format": (_with(16, b"\1"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "too large": (_batch(1, bytes(1_048_588)), ErrorCode.MESSAGE_TOO_LARGE),
    "a base offset": (_batch(base_offset=5), ErrorCode.INVALID_RECORD),
    "a control batch": (_batch(control=True), ErrorCode.INVALID_RECORD),
    "a transaction": (_batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0), 48),
    "no sequence": (_batch(producer_id=1, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_breaks_a_rule_is_refused_with_its_error(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        for what, (batch, error) in REFUSED.items():
            produced = await client.produce("t", batch, version=version)
            assert produced.error_code == error, what
            assert produced.base_offset == -1
            assert bool(produced.error_message) == (version >= 8), what
        assert (await client.produce("t", _batch(), version=version)).base_offset == 0

    simulate_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_needs_version_seven(version: int) -> None:  # KIP-110
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        produced = await client.produce("t", _batch(compression=Codec.ZSTD), version=version)
        expected = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert produced.error_code == expected

    simulate_broker(scenario)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_unknown_partitions_internal_topics_and_invalid_acks_are_refused(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        await client.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
        described = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]), 10)
        client.topic_ids["__consumer_offsets"] = described.topics[0].topic_id
        missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce("missing", _batch(), version=version)).error_code == missing
        for partition in (1, -1):
            produced = await client.produce("t", _batch(), partition, version=version)
            assert produced.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = await client.produce("__consumer_offsets", _batch(), version=version)
        assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        for acks in (2, -2, 100):
            produced = await client.produce("t", _batch(), acks=acks, version=version)
            assert produced.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        response = await client.ask(client.produce_request("t", _batch(), transactional_id="tx"), version)
        assert response.responses[0].partition_responses[0].error_code == 53
        assert (await client.produce("t", _batch(), version=version)).base_offset == 0

    simulate_broker(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_oldest_versions_are_advertised_and_refused(version: int) -> None:  # KIP-896
    assert APIS[ApiKey.PRODUCE].min_version == 0

    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        body = b"\xff\xff\0\0\3\xe8" + b"\0\0\0\1\0\1t" + b"\0\0\0\1\0\0\0\0" + b"\0\0\0\4abcd"
        raw.send_frame(b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\7\xff\xff" + body)
        await raw.settle(1)
        (frame,) = raw.frames
        assert frame[:4] == b"\0\0\0\7"
        assert frame[4:19] == b"\0\0\0\1\0\1t" + b"\0\0\0\1\0\0\0\0"
        assert int.from_bytes(frame[19:21], "big") == ErrorCode.UNSUPPORTED_VERSION

    simulate_broker(scenario)


def test_a_request_without_acks_has_no_answer_and_later_requests_are_answered() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        raw = await broker.connect_raw()
        for _ in range(5):
            raw.send_frame(_raw_produce(acks=0))
            raw.send_frame(bytes.fromhex("00120000 00000009 ffff"))
        await raw.settle(5)
        assert [frame[:4] for frame in raw.frames] == [b"\0\0\0\x09"] * 5
        assert (await client.fetch("t", 0)).high_watermark == 5
        assert broker.server.request_bytes == 0

    simulate_broker(scenario)


def test_thousands_of_batches_without_acks_on_one_connection_all_arrive() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        raw = await broker.connect_raw()
        for _ in range(3000):
            raw.send_frame(_raw_produce(acks=0))
        await broker.simulation.sleep(30)
        assert (await client.fetch("t", 2999)).high_watermark == 3000

    simulate_broker(scenario)


def test_an_error_without_acks_ends_the_connection() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send_frame(_raw_produce(acks=0))
        with trio.fail_after(30):
            await raw.ended.wait()
        await broker.simulation.sleep(10)
        assert "acks=0" in str(broker.events[-1][1]["reason"])

    simulate_broker(scenario)


def _raw_produce(acks: int) -> bytes:
    batch = _batch()
    body = b"\xff\xff" + acks.to_bytes(2, "big", signed=True) + b"\0\0\3\xe8" + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0"
    return b"\0\0\0\3\0\0\0\7\xff\xff" + body + len(batch).to_bytes(4, "big") + batch


def test_a_request_for_no_partition_is_answered_at_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        request = client.produce_request("t", None)
        request.topic_data = []
        assert (await client.ask(request, 9)).responses == []

    simulate_broker(scenario)


def test_one_answer_holds_the_outcome_of_every_partition_in_its_place() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", 3)
        request = client.produce_request("t", _batch())
        item = request.topic_data[0].partition_data[0]
        request.topic_data[0].partition_data = [type(item)(index=index, records=_batch()) for index in (2, 7, 0)]
        answered = (await client.ask(request, 9)).responses[0].partition_responses
        assert [(one.index, one.error_code, one.base_offset) for one in answered] == [(2, 0, 0), (7, 3, -1), (0, 0, 0)]

    simulate_broker(scenario)


@pytest.mark.parametrize("bound", [("PARTITIONS_PER_TURN", 2), ("WEIGHT_BYTES", 1)])
def test_a_long_request_is_appended_over_several_turns_and_later_requests_after_it(
    monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int]
) -> None:
    monkeypatch.setattr(produce, *bound)
    count = 9

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", count)
        request = client.produce_request("t", None)
        item = type(request.topic_data[0].partition_data[0])

        def of(mark: bytes) -> list[Any]:
            return [item(index=index, records=_batch(value=mark * (200 + index))) for index in range(count)]

        sent = []
        for mark in (b"a", b"b", b"c"):
            request.topic_data[0].partition_data = of(mark)
            sent.append(client.connection.send(request, 9))
        for number, each in enumerate(sent):
            outcomes = (await client.connection.wait(each)).responses[0].partition_responses
            assert [(one.index, one.error_code, one.base_offset) for one in outcomes] == [
                (index, 0, number) for index in range(count)
            ]
        for index in range(count):
            stored = bytes((await client.fetch("t", 0, partition=index)).records)
            assert [mark * (200 + index) in stored for mark in (b"a", b"b", b"c")] == [True] * 3

    simulate_broker(scenario)


def test_an_answer_without_a_commit_is_sent() -> None:
    """After a restart the first use opens the partition; a repeat and a refusal write nothing then."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        batch = _batch(producer_id=1, producer_epoch=0, base_sequence=0)
        assert (await client.produce("t", batch)).base_offset == 0
        await broker.restart()
        client = await broker.connect()
        repeat = await client.produce("t", batch)
        assert (repeat.error_code, repeat.base_offset) == (0, 0)
        await broker.restart()
        client = await broker.connect()
        refused = await client.produce("t", _batch(base_offset=9))
        assert refused.error_code == ErrorCode.INVALID_RECORD

    simulate_broker(scenario)


def test_an_idempotent_producer_is_known_after_a_power_loss() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        producer = (await client.ask(InitProducerIdRequest(transactional_id=None), 4)).producer_id

        def batch(sequence: int, epoch: int = 0) -> bytes:
            return _batch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

        for sequence in range(3):
            assert (await client.produce("t", batch(sequence))).base_offset == sequence
        await broker.restart(power_lost=True)
        client = await broker.connect()
        outcomes = [await client.produce("t", one) for one in (batch(2), batch(4), batch(3), batch(0, 1), batch(4))]
        assert [(one.error_code, one.base_offset) for one in outcomes] == [(0, 2), (45, -1), (0, 3), (0, 4), (47, -1)]
        another = (await client.ask(InitProducerIdRequest(transactional_id=None), 4)).producer_id
        assert another > producer

    simulate_broker(scenario)


MORE_COPIES = {"min.insync.replicas": "2"}


@pytest.mark.parametrize("where", ["topic", "broker"])
def test_acks_all_is_refused_if_a_topic_asks_for_more_copies_than_there_are_and_acks_1_is_not(where: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs=MORE_COPIES if where == "topic" else {})
        kind, name = (2, "t") if where == "topic" else (4, "1")
        if where == "broker":
            assert await client.alter_configs(kind, name, ("min.insync.replicas", 0, "2")) == (0, None)
        for _ in range(2):  # the second one is not parsed
            refused = await client.produce("t", _batch())
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert "min.insync.replicas" in refused.error_message
        for offset in range(2):
            assert (await client.produce("t", _batch(), acks=1)).base_offset == offset
        assert await client.alter_configs(kind, name, ("min.insync.replicas", 0, "1")) == (0, None)
        assert (await client.produce("t", _batch())).base_offset == 2
        assert await client.alter_configs(kind, name, ("min.insync.replicas", 0, "3")) == (0, None)
        assert (await client.produce("t", _batch())).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    simulate_broker(scenario)


def test_acks_all_succeeds_with_fewer_copies_than_a_topic_asks_for_if_a_setting_allows_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs=MORE_COPIES)
        for offset in range(2):
            assert (await client.produce("t", _batch())).base_offset == offset

    simulate_broker(scenario, broker=BrokerSettings(acknowledge_with_fewer_copies=True))


def test_a_batch_does_not_overtake_one_that_was_refused_for_too_few_copies() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs=MORE_COPIES)
        producer = (await client.ask(InitProducerIdRequest(transactional_id=None), 4)).producer_id
        first, second = (_batch(producer_id=producer, producer_epoch=0, base_sequence=number) for number in range(2))
        assert (await client.produce("t", first)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await client.alter_configs(2, "t", ("min.insync.replicas", 0, "1")) == (0, None)
        assert (await client.produce("t", second)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [(await client.produce("t", one)).base_offset for one in (first, second)] == [0, 1]

    simulate_broker(scenario)


def test_a_producer_that_waits_for_a_deleted_topic_is_answered() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, other = await broker.connect(), await broker.connect()
        await client.create_topic("t")
        await client.produce("t", _batch())
        broker.machine.disk.conditions.slowness = 200.0
        pending = client.connection.send(client.produce_request("t", _batch()), 9)
        poll = other.connection.send(other.fetch_request("t", 1, max_wait_ms=9000), 11)
        admin = await broker.connect()
        await admin.ask(DeleteTopicsRequest(topic_names=["t"]), 4)
        produced: Any = await client.connection.wait(pending)
        fetched: Any = await other.connection.wait(poll)
        assert produced.responses[0].partition_responses[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert fetched.responses[0].partitions[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    simulate_broker(scenario)


def test_requests_in_flight_are_answered_before_the_node_ends() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, poller = await broker.connect(), await broker.connect()
        await client.create_topic("t")
        await client.produce("t", _batch())
        poll = poller.connection.send(poller.fetch_request("t", 1, max_wait_ms=9000), 11)
        await broker.simulation.sleep(0.1)
        asked = client.connection.send(client.produce_request("t", _batch()), 9)
        await broker.simulation.sleep(0.01)
        broker.stop.set()
        answer: Any = await client.connection.wait(asked)
        assert answer.responses[0].partition_responses[0].base_offset == 1
        assert await poller.connection.wait(poll)

    simulate_broker(scenario)


def test_refused_and_repeated_batches_count_as_received_like_the_others() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        sound = _batch(producer_id=7, producer_epoch=0, base_sequence=0)
        damaged = sound[:-1] + b"?"
        outcomes = [(await client.produce("t", batch)).error_code for batch in (sound, damaged, sound)]
        assert outcomes == [0, ErrorCode.CORRUPT_MESSAGE, 0]
        metrics = broker.serving.broker.metrics
        assert (metrics.produce_batches, metrics.produce_bytes) == (3, 3 * len(sound))
        assert all("received" in COUNTERS[name][1] for name in ("produce_batches", "produce_bytes"))

    simulate_broker(scenario)
