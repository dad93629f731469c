"""Bad input: whatever a peer sends, the node continues to serve, and only that peer's connection may end."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnomon.broker.kafka.cluster import ClusterHandlers
from gnomon.broker.kafka.connections.server import DECODED_BYTES_MAX
from gnomon.runtime.settings.settings import BrokerSettings
from gnomon.testing.storms.kafka.embedded_broker import HOST, PORT, EmbeddedBroker, RawConnection, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireConnection
from gnomon.testing.strategies import messages
from gnomon.wire.kafka.api import APIS, request_header_version
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.frame import CLIENT_ID_BYTES_MAX, encode_unsigned_varint
from gnomon.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
)
from gnomon.wire.kafka.messages.group import (
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gnomon.wire.kafka.records import Record, build_batch
from gnomon.wire.kafka.schema import encode

_VERSIONS = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


API_VERSIONS_V0 = bytes.fromhex("00120000 00000001 ffff")


PRODUCE = 0


def _header(key: int, version: int, *, tags: bytes | None = None) -> bytes:
    head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1" + b"\0\1c"
    flexible = request_header_version(key, version) == 2
    return head + (tags if tags is not None else b"\0" if flexible else b"")


def _batch(value: bytes = b"v") -> bytes:
    return build_batch([Record(offset_delta=0, key=None, value=value)], base_timestamp=1)


async def _assert_serves(broker: EmbeddedBroker) -> None:
    client = await broker.connect()
    response = await client.ask(ApiVersionsRequest(), 0)
    assert response.error_code == 0
    client.connection.close()


async def _assert_refused(broker: EmbeddedBroker, raw: RawConnection, *words: str) -> None:
    with trio.fail_after(60):
        await raw.ended.wait()
    await broker.simulation.sleep(10)
    assert raw.frames == []
    event, fields = broker.events[-1]
    assert event == "connection_refused"
    assert all(word in str(fields["reason"]) for word in words), fields
    await _assert_serves(broker)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff", ["negative"]),
        (b"\x7f\xff\xff\xff", ["socket.request.max.bytes"]),
        (b"\x00\x00\x00\x05hello", ["header"]),
        (b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n", ["HTTP"]),
        (b"POST / HTTP/1.1\r\n\r\n", ["HTTP"]),
        (bytes.fromhex("1603010200010001fc0303") + b"x" * 100, ["TLS"]),
        (b"\x00\x00\x00\x0a" + bytes.fromhex("03e70000 00000001 ffff"), ["API key 999"]),
        (b"\x00\x00\x00\x0b" + bytes.fromhex("00030063 00000001 ffff 00"), ["METADATA version 99"]),
        (b"\x00\x00\x00\x0a" + bytes.fromhex("0003ffff 00000001 ffff"), ["METADATA version -1"]),
        (b"\x00\x00\x00\x0c" + bytes.fromhex("00030000 00000001 7fff") + b"ab", ["client id"]),
        (b"\x00\x00\x04\x0b" + bytes.fromhex("00030000 00000001 0401") + b"c" * 1025, ["client id", "1025", "1024"]),
        (b"\x00\x00\x00\x0e" + bytes.fromhex("00030001 00000001 ffff 7fffffff"), ["MetadataRequest"]),
        (b"\x00\x00\x00\x0e" + bytes.fromhex("00030001 00000001 ffff fffffffe"), ["MetadataRequest"]),
    ],
    ids=lambda value: value[:12].hex() if isinstance(value, bytes) else "",
)
def test_bytes_that_are_no_request_end_their_connection_with_a_clear_reason(data: bytes, words: list[str]) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send(data)
        await _assert_refused(broker, raw, *words)

    simulate_broker(scenario)


def test_an_unfinished_frame_takes_memory_only_for_the_bytes_that_arrived() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raws = [await broker.connect_raw() for _ in range(20)]
        for raw in raws:
            raw.send((100 << 20).to_bytes(4, "big") + b"\0\0\0\7")
        await broker.simulation.sleep(1)
        held = [connection._frames.capacity_bytes for connection in broker.server._connections]
        assert sum(held) < 1 << 20
        await _assert_serves(broker)
        assert broker.server.request_bytes == 0

    simulate_broker(scenario)


def test_an_unknown_version_of_api_versions_is_answered_in_version_zero() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send_frame(bytes.fromhex("00120063 00000005 0000 00"))
        await raw.settle(1)
        (frame,) = raw.frames
        assert frame[:4] == b"\0\0\0\5"
        assert int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
        assert int.from_bytes(frame[6:10], "big") == len(APIS)
        raw.send_frame(API_VERSIONS_V0)
        await raw.settle(2)
        assert raw.frames[1][4:6] == b"\0\0"

    simulate_broker(scenario)


_LONG_NAME = encode_unsigned_varint(40_001) + b"n" * 40_000


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (0, 9, b"\0\xff\xff\0\0\0\1\2" + _LONG_NAME + b"\2\0\0\0\0\0\0\0\0"),
        (1, 12, b"\xff" * 4 + bytes(17) + b"\xff" * 4 + b"\2" + _LONG_NAME + b"\1\0\1\1\0"),
        (3, 9, b"\2" + _LONG_NAME + b"\0\0\0\0\0"),
        (15, 5, b"\2" + _LONG_NAME + b"\0\0"),
    ],
    ids=["produce", "fetch", "metadata", "describe groups"],
)
def test_a_string_longer_than_kafka_allows_is_refused_without_an_answer(key: int, version: int, body: bytes) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send_frame(_header(key, version) + body)
        await _assert_refused(broker, raw, "40000 bytes", "32767")

    simulate_broker(scenario)


@pytest.mark.parametrize(("key", "version", "item"), [(15, 5, b"\2g"), (42, 2, b"\2g"), (9, 8, b"\2g\0\0")])
def test_a_request_about_too_many_groups_is_refused_as_a_whole(key: int, version: int, item: bytes) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send_frame(
            _header(key, version) + encode_unsigned_varint(10_002) + item * 10_001 + (b"\0" if key == 42 else b"\0\0")
        )
        await _assert_refused(broker, raw, "10000" if key != 9 else "5000")

    simulate_broker(scenario)


def test_a_client_with_the_longest_client_id_gets_a_member_id_that_can_be_sent() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=1000, protocols=[protocol]
        )
        join.protocol_type = "consumer"
        connection = await WireConnection.open(broker.client_world, HOST, PORT, "\u20ac" * (CLIENT_ID_BYTES_MAX // 3))
        joined = await connection.request(join, 4, JoinGroupResponse)
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        join.member_id = joined.member_id
        assert (await connection.request(join, 4, JoinGroupResponse)).error_code == 0

    simulate_broker(scenario)


def test_an_answer_that_cannot_be_encoded_ends_only_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ClusterHandlers, "find_coordinator", lambda self, request: FindCoordinatorResponse(port=1 << 40)
    )

    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send_frame(_header(10, 0) + b"\0\1g")
        await _assert_refused(broker, raw, "the answer cannot be sent", "port")

    simulate_broker(scenario)


def test_unknown_tagged_fields_are_skipped_in_header_and_body() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        tags = b"\x02" + b"\x63\x03abc" + b"\x64\x00"
        raw.send_frame(_header(18, 3, tags=tags) + b"\x02a\x02b" + tags)
        await raw.settle(1)
        assert raw.frames[0][4:6] == b"\0\0"

    simulate_broker(scenario)


def test_only_a_produce_request_may_exceed_the_size_limit_of_decoding() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        raw = await broker.connect_raw()
        raw.send_frame(_header(15, 0) + bytes(DECODED_BYTES_MAX))
        await _assert_refused(broker, raw, "DESCRIBE_GROUPS", str(DECODED_BYTES_MAX))
        client = await broker.connect()
        await client.create_topic("large", configs={"max.message.bytes": str(32 << 20)})
        assert (await client.produce("large", _batch(bytes(DECODED_BYTES_MAX + 1)))).error_code == 0

    simulate_broker(scenario)


def test_a_batch_with_a_wrong_checksum_is_refused_and_its_connection_stays_open() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        damaged = bytearray(_batch())
        damaged[-1] ^= 1
        assert (await client.produce("t", bytes(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
        assert (await client.produce("t", _batch())).base_offset == 0

    simulate_broker(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_the_node_continues_to_serve_after_random_frames_of_every_api_and_version(seed: int) -> None:
    """A thousand frames for each seed: noise after a valid header, and valid requests changed or cut short."""

    async def scenario(broker: EmbeddedBroker) -> None:
        stream = random.Random(f"frames/{seed}")
        client = await broker.connect()
        await client.create_topic("t")
        await client.create_topic("kept")
        sound = _sound_requests()
        frames = 0
        for api, version in _VERSIONS:
            for _ in range(6):
                raw = await broker.connect_raw()
                if api.serves(version) and stream.random() < 0.6:
                    body = bytearray(stream.choice(sound[api.key, version]))
                    for _ in range(stream.choice([0, 1, 1, 3])):
                        if body:
                            body[stream.randrange(len(body))] = stream.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
                    body = body[: stream.choice([len(body), len(body), stream.randint(0, len(body))])]
                else:
                    body = bytearray(stream.randbytes(stream.choice([0, 3, 20, 200])))
                raw.send_frame(_header(api.key, version) + bytes(body))
                frames += 1
            await broker.simulation.sleep(0.05)
        await broker.simulation.sleep(1)
        await _assert_serves(broker)
        assert (await client.produce("kept", _batch())).error_code == 0
        broker.simulation.machine("clients").kill()
        await broker.simulation.sleep(100)
        assert broker.server.request_bytes == 0
        assert frames > 900

    simulate_broker(scenario, seed=seed, kafka={"group.min.session.timeout.ms": "1"})


def _sound_requests() -> dict[tuple[int, int], list[bytes]]:
    """A few valid requests of every API and version, drawn from the declarations of their messages."""
    if not _SOUND:
        names = st.sampled_from(["t", "u", "", "g"])
        for api, version in _VERSIONS:
            if api.serves(version):
                _SOUND[api.key, version] = _drawn(api.request, version, names)
    return _SOUND


_SOUND: dict[tuple[int, int], list[bytes]] = {}


def _drawn(request: type, version: int, names: st.SearchStrategy[str]) -> list[bytes]:
    found: list[bytes] = []
    fields = {"name": names, "topic": names, "group_id": names, "resource_name": names}

    @settings(max_examples=6, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(messages(request, version, fields))
    def draw(message: Any) -> None:
        found.append(encode(message, version))

    draw()
    return found


def test_texts_that_quote_a_long_name_fit_into_every_answer() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        from gnomon.wire.kafka.messages.configs import (
            AlterableConfig,
            AlterConfigsRequest,
            AlterConfigsResource,
            DescribeConfigsRequest,
            DescribeConfigsResource,
        )

        client = await broker.connect()
        await client.create_topic("t")
        long = "\u00e4" * 16_000
        create = CreatableTopic(name=long, num_partitions=1, replication_factor=1)
        named = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        named.configs = [
            CreatableTopicConfig(name="retention.ms", value=long),
            CreatableTopicConfig(name=long, value="1"),
        ]
        response = await client.ask(CreateTopicsRequest(topics=[create, named]), 2)
        assert [item.error_code for item in response.topics] == [17, 40]
        response = await client.ask(
            DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=long)]), 1
        )
        assert response.results[0].error_code == 3
        resource = AlterConfigsResource(
            resource_type=2, resource_name="t", configs=[AlterableConfig(name="retention.ms", value=long)]
        )
        response = await client.ask(AlterConfigsRequest(resources=[resource]), 0)
        assert response.responses[0].error_code == 40
        assert (await client.produce(long, _batch(), version=8)).error_code == 3

    simulate_broker(scenario)


def test_a_fetch_of_more_partitions_than_the_store_has_readers_is_answered() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("wide", 150)
        produce = client.produce_request("wide", _batch())
        one = produce.topic_data[0].partition_data[0]
        produce.topic_data[0].partition_data = [type(one)(index=index, records=_batch()) for index in range(150)]
        await client.ask(produce, 9)
        fetch = client.fetch_request("wide", 0)
        wanted = fetch.topics[0].partitions[0]
        fetch.topics[0].partitions = [
            type(wanted)(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(150)
        ]
        fetch.max_bytes = 50 << 20
        response = await client.ask(fetch, 11)
        assert all(item.records for item in response.responses[0].partitions)

    simulate_broker(scenario)


def test_a_client_is_served_beside_a_thousand_idle_and_slow_connections() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        for number in range(1000):
            raw = await broker.connect_raw()
            raw.send([b"", b"\0\0", b"\0\0\0\x0a\0\x12"][number % 3])
        client = await broker.connect()
        await client.create_topic("t")
        for number in range(20):
            assert (await client.produce("t", _batch())).base_offset == number
        assert broker.serving.metrics.connections == 1001
        assert broker.server.request_bytes == 0

    simulate_broker(scenario)


def test_a_producer_is_served_beside_slow_connections_with_large_unfinished_requests() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        slow = [await broker.connect_raw() for _ in range(20)]
        for raw in slow:
            raw.send((2 << 20).to_bytes(4, "big") + bytes(400 << 10))
        await broker.simulation.sleep(5)
        large = _batch(bytes(900 << 10))
        for number in range(20):
            assert (await client.produce("t", large)).base_offset == number
            raw = await broker.connect_raw()
            raw.send((2 << 20).to_bytes(4, "big") + bytes(400 << 10))
            await broker.simulation.sleep(1)
        ended = [raw.ended.is_set() for raw in slow]
        assert any(ended)
        refused = [str(fields["reason"]) for event, fields in broker.events if event == "connection_refused"]
        assert all("unfinished requests" in reason for reason in refused)

    simulate_broker(scenario, broker=BrokerSettings(request_queue_bytes_max=8 << 20))


def test_a_connection_beyond_the_limit_is_closed_and_the_others_are_served() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        held = [await broker.connect_raw() for _ in range(3)]
        raw = await broker.connect_raw()
        with trio.fail_after(60):
            await raw.ended.wait()
        await broker.simulation.sleep(10)
        assert "connections_max" in str(broker.events[-1][1]["reason"])
        held[0].connection.abort()
        await broker.simulation.sleep(1)
        await _assert_serves(broker)

    simulate_broker(scenario, broker=BrokerSettings(connections_max=3))
