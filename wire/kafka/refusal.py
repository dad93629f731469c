"""Answers that refuse a whole request: an error code at each place that the answer has for one. Pure.

1. An answer has an item for each item of the request, with the name, id or number of that item.
2. Every `error_code` of the answer and of its items is the given one; every other field has its default. The code of a
   Fetch itself is about its session: it is given only if there are no items.
3. Only fields that the version has are set: it can express every such answer.
"""

from __future__ import annotations

from typing import Any, Final

from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import NO_UUID, Field, ProtocolMessage, Struct
from gnomon.wire.kafka.messages.fetch import FetchResponse

_TOPIC: Final = ("name", "topic", "topic_name")
_PARTITION: Final = ("partition_index", "partition", "partition_id", "index")
IDENTIFYING: Final = (
    _TOPIC,
    _PARTITION,
    ("topic_id",),
    ("group_id",),
    ("key",),
    ("member_id",),
    ("group_instance_id",),
    ("resource_type",),
    ("resource_name",),
)
"""Fields that say which item an answer is about, with the names that requests and answers have for one thing."""
CODE: Final = "error_code"
TEXT: Final = "error_message"


def refusal(
    request: Struct, response: type[ProtocolMessage], version: int, code: ErrorCode, text: str
) -> ProtocolMessage:
    """The answer of the class `response` that refuses `request`.

    Args:
        version: of the request, and so of the answer.
        text: the message beside each code, where the answer has one.
    """
    answer = _refused(request, response, version, code, text)
    assert isinstance(answer, ProtocolMessage), "a response makes a message"
    if isinstance(answer, FetchResponse) and answer.responses:
        answer.error_code = ErrorCode.NONE
    return answer


def _refused(item: Any, answer: type[Struct], version: int, code: ErrorCode, text: str) -> Struct:
    """An answer of the class `answer` to an item: a struct, a text or a number."""
    values: dict[str, object] = {}
    for field in answer.FIELDS:
        if not field.present(version):
            continue
        if field.name == CODE:
            values[field.name] = code
        elif field.name == TEXT:
            values[field.name] = text
        elif field.array and isinstance(kind := field.kind, type) and _has_code(kind):
            values[field.name] = [_refused(each, kind, version, code, text) for each in _items(item, field)]
        elif not isinstance(item, ProtocolMessage) and not field.array:
            found = _identity(item, field)
            if found is not None:
                values[field.name] = found
    return answer(**values)


def _has_code(kind: type[Struct]) -> bool:
    """Whether such structs have an error code, or items that have one."""
    return any(
        each.name == CODE or (each.array and isinstance(each.kind, type) and _has_code(each.kind))
        for each in kind.FIELDS
    )


def _items(item: Any, field: Field) -> list[Any]:
    """The items of a request that the items of `field` answer: those of the same name, otherwise its first array."""
    if not isinstance(item, Struct):
        return []
    named = getattr(item, field.name, None)
    arrays = [named, *(getattr(item, each.name) for each in item.FIELDS if each.array)]
    return next((array for array in arrays if array), [])


def _identity(item: Any, field: Field) -> object:
    """The value of a field that says which item it is; None if it does not say that, or the item lacks it."""
    names = next((names for names in IDENTIFYING if field.name in names), None)
    if names is None:
        return None
    if isinstance(item, Struct):
        return next((getattr(item, name) for name in names if hasattr(item, name)), None)
    number = isinstance(item, int)
    return item if number == (names is _PARTITION) else None


def named_topics(request: Struct) -> set[object]:
    """The names and ids of the topics that a request names."""
    found: set[object] = set()
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if not field.array or not value:
            continue
        for each in value:
            if isinstance(each, Struct):
                found.update(getattr(each, name) for name in ("topic_id", *_TOPIC) if hasattr(each, name))
                found |= named_topics(each)
                found.add(getattr(each, "resource_name", NO_UUID))
            elif field.name == "topic_names":
                found.add(each)
    return found - {NO_UUID}


def spoil(answer: Struct, code: ErrorCode) -> None:
    """Sets every error code of an answer and of its items."""
    for field in answer.FIELDS:
        if field.name == CODE:
            setattr(answer, CODE, code)
        elif field.array and isinstance(field.kind, type) and _has_code(field.kind):
            for each in getattr(answer, field.name) or ():
                spoil(each, code)
