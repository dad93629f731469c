"""Each field of every request at the extreme values of its type, the other fields valid: no request stops a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka import primitives
from gnomon.wire.kafka.api import APIS, Api, request_header_version
from gnomon.wire.kafka.fields import NO_UUID, Field, FieldKind, Struct
from gnomon.wire.kafka.messages.positions import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gnomon.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch
from gnomon.wire.kafka.schema import InexpressibleMessage, encode

_TEXTS = {"group_id": "g", "groups": "g", "groups_names": "g", "key": "g", "member_id": "", "value": "1000"}
_PLAIN_TEXTS = {"name", "topic", "resource_name", "topic_name", "topic_names", "topics"}
_NUMBERS = {
    "acks": -1,
    "committed_leader_epoch": -1,
    "count": 2,
    "current_leader_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "leader_epoch": -1,
    "max_bytes": 1000,
    "num_partitions": 1,
    "partition_max_bytes": 1000,
    "rebalance_timeout_ms": 1000,
    "replication_factor": 1,
    "resource_type": 2,
    "retention_time_ms": -1,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
}
"""Values that lead far into a handler, for fields where 0 does not."""
_LEFT_EMPTY = {"assignments", "forgotten_topics_data", "configs"}
_ENDS: dict[str, tuple[Any, ...]] = {
    **{f"int{bits}": (0, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (16, 32)},
    "string": ("", "x" * 32_767, "\u20ac" * 10_922, "x" * 40_000),
    "bytes": (b"", bytes(40_000)),
    "bool": (True, False),
}
_BATCH = build_batch([Record(value=b"v")], base_timestamp=1)


def _sound(cls: type[Struct], version: int, topic_id: UUID) -> Any:
    """A struct with values that a broker accepts, and one element in every array."""
    made = cls()
    for field in cls.FIELDS:
        if field.present(version) and field.name not in _LEFT_EMPTY:
            value = _sound_value(field, version, topic_id)
            setattr(made, field.name, [value] if field.array else value)
    return made


def _sound_value(field: Field, version: int, topic_id: UUID) -> Any:
    if not isinstance(field.kind, FieldKind):
        return _sound(field.kind, version, topic_id)
    match field.kind.name:
        case "string":
            plain = "t" if field.name in _PLAIN_TEXTS else ""
            return _TEXTS.get(field.name, None if field.nullable(version) and not field.array and not plain else plain)
        case "uuid":
            return topic_id
        case "records":
            return _BATCH
        case "bytes" | "bool" | "float64":
            return field.kind.zero
        case _:
            return _NUMBERS.get(field.name, 0)


def _leaves(made: Any, version: int) -> Iterator[tuple[Any, Field]]:
    for field in type(made).FIELDS:
        if not field.present(version):
            continue
        value = getattr(made, field.name)
        if isinstance(field.kind, FieldKind):
            yield made, field
        elif value:
            yield from _leaves(value[0] if field.array else value, version)


def _requests(api: Api, version: int, topic_id: UUID, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The valid request, and one more for each extreme value of each of its fields."""
    made = _sound(api.request, version, topic_id)
    found = [encode(made, version)]
    with monkeypatch.context() as patch:
        patch.setattr(primitives, "STRING_BYTES_MAX", 40_000)  # clients may exceed it if the version can encode that
        for owner, field in _leaves(made, version):
            assert isinstance(field.kind, FieldKind)
            sound = getattr(owner, field.name)
            for end in (*_ENDS.get(field.kind.name, ()), *((None,) if field.nullable(version) else ())):
                setattr(owner, field.name, [end] if field.array and end is not None else end)
                try:
                    found.append(encode(made, version))
                except InexpressibleMessage:
                    continue
            setattr(owner, field.name, sound)
    return found


def _versions(api: Api) -> list[int]:
    """The oldest and the newest version, the last one before compact lengths and the first one with them."""
    served = [version for version in range(api.min_version, api.max_version + 1) if api.serves(version)]
    headers = {request_header_version(api.key, version): version for version in served}
    first = {request_header_version(api.key, version): version for version in reversed(served)}
    return sorted({served[0], served[-1], *headers.values(), *first.values()})


@pytest.mark.parametrize("part", range(4))
def test_no_extreme_value_stops_a_node_or_disables_it_after_a_restart(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        sent = 0
        for api in list(APIS.values())[part::4]:
            for version in _versions(api):
                topic_id = await _ensure_topic(broker)
                for body in _requests(api, version, topic_id, monkeypatch):
                    raw = await broker.connect_raw()
                    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\1c"
                    raw.send_frame(head + b"\0" * (request_header_version(api.key, version) == 2) + body)
                    sent += 1
                await broker.simulation.sleep(0.05)
        assert sent > 300
        await _ensure_topic(broker)
        await _assert_sound(broker)
        await broker.restart()
        await _assert_sound(broker)

    simulate_broker(scenario, kafka={"group.min.session.timeout.ms": "1", "offsets.topic.num.partitions": "1"})


async def _ensure_topic(broker: EmbeddedBroker) -> UUID:
    """The id of the topic "t", which is created again if a request has deleted it."""
    client = await broker.connect()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await client.ask(CreateTopicsRequest(topics=[topic]), 7)
    client.connection.close()
    found = broker.serving.broker.topics.image.get("t")
    return found.id if found is not None else NO_UUID


async def _assert_sound(broker: EmbeddedBroker) -> None:
    client = await broker.connect()
    offset = (await client.produce("t", _BATCH)).base_offset
    assert offset >= 0
    assert (await client.fetch("t", offset)).records
    for timestamp in (-3, -2, -1, 0, 1 << 40):
        wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
        topic = ListOffsetsTopic(name="t", partitions=[wanted])
        listed = await client.ask(ListOffsetsRequest(topics=[topic]), 8)
        assert listed.topics[0].partitions[0].error_code == 0
    client.connection.close()
