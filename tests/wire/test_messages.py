"""Every message in every version: against kio as the oracle, cut short, and damaged."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import io
import random
import re
from typing import Any
from uuid import UUID

import pytest
from edges import LENGTHS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from gnomon.testing.strategies import messages
from gnomon.wire.kafka.api import APIS
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID, FieldKind, ProtocolMessage, Struct
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from gnomon.wire.kafka.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from gnomon.wire.kafka.messages.header import RequestHeader
from gnomon.wire.kafka.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from gnomon.wire.kafka.schema import MalformedMessage, decode, encode

_API_CLASSES = [cls for api in APIS.values() for cls in (api.request, api.response)]
_CLIENT_CLASSES = [RequestHeader, ConsumerProtocolSubscription, ConsumerProtocolAssignment]
_STORED_CLASSES = [OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue]


def _versions(classes: list[type[ProtocolMessage]]) -> list[Any]:
    return [
        pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
        for cls in classes
        for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1)
    ]


_KNOWN_TO_KIO = _versions([*_API_CLASSES, *_CLIENT_CLASSES])
_ALL = _versions([*_API_CLASSES, *_CLIENT_CLASSES, *_STORED_CLASSES])

# kio turns error codes into an enum and times into timedelta and datetime, whose ranges are smaller than the wire's.
_WITHIN_KIO: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "topic_config_error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "retention_time_ms": st.integers(-1, 2**40),
    "log_append_time_ms": st.integers(-1, 2**40),
}

_modest = settings(max_examples=4, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def _kio_class(cls: type[ProtocolMessage], version: int) -> Any:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    for suffix, module in (("_request", "request"), ("_response", "response"), ("_header", "header"), ("", "data")):
        if snake.endswith(suffix):
            folder = snake if module in ("header", "data") else snake.removesuffix(suffix)
            return getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{module}"), cls.__name__)
    raise AssertionError(cls)


def _plain_from_kio(value: Any, kafka_type: str = "") -> Any:
    if dataclasses.is_dataclass(value):
        plain = {}
        for field in dataclasses.fields(value):
            kind = field.metadata.get("kafka_type", "")
            name = f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name
            plain[name] = _plain_from_kio(getattr(value, field.name), kind)
        return plain
    if isinstance(value, tuple):
        return [_plain_from_kio(item, kafka_type) for item in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
    if value is None:
        return {"uuid": NO_UUID, "datetime_i64": -1}.get(kafka_type)
    return int(value) if isinstance(value, enum.IntEnum) else value


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return {f.name: _plain(getattr(value, f.name), version) for f in value.FIELDS if f.present(version)}
    return [_plain(item, version) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("cls", "version"), _KNOWN_TO_KIO)
def test_kio_reads_the_same_values_from_our_bytes_and_writes_the_same_bytes(
    cls: type[ProtocolMessage], version: int
) -> None:
    theirs = _kio_class(cls, version)
    read, write = entity_reader(theirs), entity_writer(theirs)

    @_modest
    @given(messages(cls, version, _WITHIN_KIO))
    def check(message: ProtocolMessage) -> None:
        ours = encode(message, version)
        seen, size = read(ours, 0)
        assert size == len(ours)
        assert _plain_from_kio(seen) == _plain(message, version)
        with io.BytesIO() as out:
            write(out, seen)
            assert out.getvalue() == ours
        assert decode(cls, version, ours) == (message, len(ours))

    check()


@pytest.mark.parametrize(("cls", "version"), _ALL)
def test_decoding_gives_back_what_was_encoded(cls: type[ProtocolMessage], version: int) -> None:
    @_modest
    @given(messages(cls, version), st.binary(max_size=3))
    def check(message: ProtocolMessage, around: bytes) -> None:
        encoded = encode(message, version)
        again, end = decode(cls, version, around + encoded + around, len(around))
        assert again == message
        assert end == len(around) + len(encoded)
        assert encode(again, version) == encoded

    check()


def _rich(cls: type[Struct], version: int, text: str = "ü7", data: bytes = b"\1\2\3", count: int = 2) -> dict[str, Any]:
    """A value other than the default for every field of the version; `count` is the length of the outermost arrays."""
    samples = {"bool": True, "uuid": UUID(int=7), "string": text, "bytes": data, "records": data}
    chosen: dict[str, Any] = {}
    for field in cls.FIELDS:
        if field.present(version):
            kind = field.kind
            value = (
                samples.get(kind.name, 77) if isinstance(kind, FieldKind) else kind(**_rich(kind, version, text, data))
            )
            chosen[field.name] = [value] * count if field.array else value
    return chosen


@pytest.mark.parametrize(("cls", "version"), _ALL)
def test_texts_bytes_and_arrays_of_the_lengths_at_which_their_encoding_changes_are_decoded(
    cls: type[ProtocolMessage], version: int
) -> None:
    for length in LENGTHS:
        message = cls(**_rich(cls, version, "t" * length, bytes(length), 1))
        assert decode(cls, version, encode(message, version))[0] == message
    for count in (0, 1, 126, 127, 128):
        message = cls(**_rich(cls, version, count=count))
        assert decode(cls, version, encode(message, version))[0] == message


@pytest.mark.parametrize("version", [5, 9])
@pytest.mark.parametrize("length", LENGTHS)
def test_kio_reads_texts_bytes_and_arrays_of_the_lengths_at_which_their_encoding_changes(
    version: int, length: int
) -> None:
    protocols = [JoinGroupRequestProtocol(name="p", metadata=bytes(length))] * length if length < 200 else []
    message = JoinGroupRequest(group_id="g" * length, member_id="", protocol_type="consumer", protocols=protocols)
    ours = encode(message, version)
    seen, size = entity_reader(_kio_class(JoinGroupRequest, version))(ours, 0)
    assert size == len(ours)
    assert (seen.group_id, len(seen.protocols)) == (message.group_id, len(protocols))
    assert all(each.metadata == bytes(length) for each in seen.protocols)


@pytest.mark.parametrize(("cls", "version"), _ALL)
def test_a_message_cut_short_anywhere_is_malformed(cls: type[ProtocolMessage], version: int) -> None:
    message = cls(**_rich(cls, version))
    encoded = encode(message, version)
    assert decode(cls, version, encoded) == (message, len(encoded))
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessage, match=rf"^{cls.__name__} v{version}: .+ at byte \d+: "):
            decode(cls, version, encoded[:size])


@pytest.mark.parametrize(("cls", "version"), _ALL)
def test_damaged_bytes_are_malformed_or_another_message_and_nothing_else(
    cls: type[ProtocolMessage], version: int
) -> None:
    noise = random.Random(f"{cls.__name__}/{version}")
    encoded = encode(cls(**_rich(cls, version)), version)
    for _ in range(60):
        damaged = bytearray(encoded) or bytearray(noise.randbytes(8))
        for _ in range(noise.randint(1, 3)):
            damaged[noise.randrange(len(damaged))] = noise.choice((0, 1, 0x7F, 0x80, 0xFF, noise.randrange(256)))
        for buffer in (bytes(damaged), noise.randbytes(noise.randrange(40))):
            try:
                _, end = decode(cls, version, buffer)
            except MalformedMessage:
                continue
            assert end <= len(buffer)


@pytest.mark.parametrize(("cls", "version"), _ALL)
def test_unknown_tagged_fields_are_skipped(cls: type[ProtocolMessage], version: int) -> None:
    encoded = encode(cls(), version)
    if version < cls.FLEXIBLE:
        assert decode(cls, version, encoded) == (cls(), len(encoded))
        return
    assert encoded[-1] == 0, "a default message says no tagged field"
    unknown = encoded[:-1] + b"\2" + b"\x63\3abc" + b"\xe4\1\0"
    assert decode(cls, version, unknown) == (cls(), len(unknown))
