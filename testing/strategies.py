"""Hypothesis strategies for Kafka messages, derived from their declared fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from hypothesis import strategies as st

from gnomon.wire.kafka.fields import NO_UUID, Field, FieldKind, Struct

S = TypeVar("S", bound=Struct)

_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.just(NO_UUID) | st.uuids(),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=24),
    "records": st.binary(max_size=24),
}


def messages(
    cls: type[S], version: int, values: Mapping[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[S]:
    """Messages or structs that the version can express: fields that it lacks have their defaults.

    Args:
        cls: a message or struct class.
        version: one of the message's versions.
        values: strategies for fields of these names, at any depth, instead of those for their types.
    """
    present = {field.name: _field(field, version, values or {}) for field in cls.FIELDS if field.present(version)}
    return st.fixed_dictionaries(present).map(lambda chosen: cls(**chosen))


def _field(field: Field, version: int, values: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    if field.name in values:
        return values[field.name]
    kind = field.kind
    value = _KINDS[kind.name] if isinstance(kind, FieldKind) else messages(kind, version, values)
    if field.array:
        value = st.lists(value, max_size=3)
    return st.none() | value if field.nullable(version) else value
