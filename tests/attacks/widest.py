"""Requests with as many array elements as their API allows: one for each array of each API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

from gnomon.wire.kafka.api import APIS, Api, ApiKey
from gnomon.wire.kafka.fields import Field, ProtocolMessage, Struct, string, uuid
from gnomon.wire.kafka.schema import encode

NOT_DECODED = (ApiKey.PRODUCE, ApiKey.FETCH)
"""The APIs with parsers of their own."""
BY_NAME = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9, ApiKey.METADATA: 9}
"""The versions that name topics, not their ids."""
WHOLE = (("group_id", "wide"), ("validate_only", True))
"""Fields of whole requests. (Creating ten thousand topics is no attack, but work.)"""
TOPIC_RESOURCE = 2
ROOM = 100
"""Elements that are left for the structs around the longest array."""


def widest(topic: str, partitions: int) -> Iterator[tuple[str, int, int, bytes]]:
    """A name, the API key, the version and the body of each request.

    Args:
        topic: a topic for the fields that name one.
        partitions: the number of its partitions.
    """
    for api in APIS.values():
        version = BY_NAME.get(api.key, api.max_version)
        if api.key not in NOT_DECODED:
            for path in _arrays(api.request, version):
                name = f"{api.key.name}, {api.elements_max - ROOM} {'/'.join(field.name for field in path)}"
                yield name, api.key, version, encode(_message(api, version, path, topic, partitions), version)


def _arrays(kind: type[Struct], version: int) -> Iterator[tuple[Field, ...]]:
    for field in kind.FIELDS:
        if field.array and field.present(version):
            yield (field,)
            if isinstance(field.kind, type):
                for rest in _arrays(field.kind, version):
                    yield (field, *rest)


def _message(api: Api, version: int, path: tuple[Field, ...], topic: str, partitions: int) -> ProtocolMessage:
    message = api.request()
    for field, value in WHOLE:
        if any(each.name == field and each.present(version) for each in api.request.FIELDS):
            setattr(message, field, value)
    struct: Struct = message
    for outer in path[:-1]:
        inner = cast("type[Struct]", outer.kind)()
        _fill(inner, topic, 0)
        setattr(struct, outer.name, [inner])
        struct = inner
    last = path[-1]
    count = api.elements_max - ROOM
    setattr(struct, last.name, [_element(last, number, partitions) for number in range(count)])
    return message


def _element(field: Field, number: int, partitions: int) -> Any:
    if isinstance(field.kind, type):
        element = field.kind()
        _fill(element, f"{number:05x}", number % partitions)
        return element
    if field.kind is string:
        return f"{number:05x}"
    return UUID(int=number + 1) if field.kind is uuid else number % partitions


def _fill(struct: Struct, name: str, number: int) -> None:
    for field in struct.FIELDS:
        if field.array or isinstance(field.kind, type) or field.tag is not None:
            continue
        if field.kind is string and field.default is not None:
            setattr(struct, field.name, name)
        elif field.name.startswith("partition"):
            setattr(struct, field.name, number)
        elif field.name == "resource_type":
            setattr(struct, field.name, TOPIC_RESOURCE)
