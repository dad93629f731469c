"""Divides a request about many groups or many offsets into parts, and joins the answers. Pure.

1. A part names one group, and at most OFFSETS_MAX of its offsets: handling a part takes a few milliseconds. A group
   that is named twice has the parts of its first mention, as in Kafka.
2. The joined answer has each partition of each part, in the order of the request. An error of a whole group in one part
   is the error of the group.
3. A request that fits in one part is not divided: all offsets of such a commit become durable together.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from gnomon.broker.groups.call import GroupCall, ManyOffsets, refused
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from gnomon.wire.kafka.messages.offsets import (
    FETCH_GROUPS_SINCE,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from gnomon.wire.kafka.schema import ProtocolMessage

S = TypeVar("S")

OFFSETS_MAX = 300
"""Offsets of a part: storing as many takes some 4 ms."""
GROUP_WEIGHT = 4
"""Naming a group costs as much as so many offsets."""


class RequestPart(NamedTuple):
    """A part of a request. `weight` is about the number of its offsets."""

    group_id: str
    request: ProtocolMessage
    weight: int


def parts_of(call: GroupCall) -> Iterator[RequestPart]:
    """The parts of a request, in order; one with the request itself where it needs no division."""
    request = call.request
    match request:
        case DescribeGroupsRequest():
            asked = request.include_authorized_operations
            for name in dict.fromkeys(request.groups):
                described = DescribeGroupsRequest(groups=[name], include_authorized_operations=asked)
                yield RequestPart(name, described, GROUP_WEIGHT)
        case DeleteGroupsRequest():
            for name in dict.fromkeys(request.groups_names):
                yield RequestPart(name, DeleteGroupsRequest(groups_names=[name]), GROUP_WEIGHT)
        case OffsetFetchRequest() if call.version >= FETCH_GROUPS_SINCE:
            unique = {group.group_id: group for group in reversed(request.groups)}
            for name in dict.fromkeys(group.group_id for group in request.groups):
                yield from _parts_of_group(request, unique[name])
        case OffsetFetchRequest():
            yield from _sliced(request, "partition_indexes")
        case OffsetCommitRequest() | OffsetDeleteRequest():
            yield from _sliced(request, "partitions")
        case _:
            raise AssertionError(f"{type(request).__name__} is not divided")


def _parts_of_group(request: OffsetFetchRequest, group: OffsetFetchRequestGroup) -> Iterator[RequestPart]:
    for topics, weight in _slices(group.topics, "partition_indexes"):
        part = _with(group, topics=topics)
        whole = OffsetFetchRequest(groups=[part], require_stable=request.require_stable)
        yield RequestPart(group.group_id, whole, weight + GROUP_WEIGHT)


def _sliced(request: Any, partitions: str) -> Iterator[RequestPart]:
    for topics, weight in _slices(request.topics, partitions):
        whole = request if topics is request.topics else _with(request, topics=topics)
        yield RequestPart(request.group_id, whole, weight + GROUP_WEIGHT)


def _slices(topics: list[Any] | None, partitions: str) -> Iterator[tuple[list[Any] | None, int]]:
    """Runs of topics with at most OFFSETS_MAX partitions together, and their numbers; a topic may be cut."""
    total = sum(1 + len(getattr(topic, partitions)) for topic in topics or ())
    if topics is None or total <= OFFSETS_MAX:
        yield topics, total
        return
    some: list[Any] = []
    weight = 0
    for topic in topics:
        items = getattr(topic, partitions)
        at = 0
        while at < len(items) or not at:
            taken = items[at : at + max(1, OFFSETS_MAX - weight)]
            some.append(_with(topic, **{partitions: taken}))
            weight += 1 + len(taken)
            at += max(1, len(taken))
            if weight >= OFFSETS_MAX:
                yield some, weight
                some, weight = [], 0
    if some:
        yield some, weight


def _with(struct: S, **fields: Any) -> S:
    """A copy of a struct with other values of some fields."""
    changed = copy.copy(struct)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def with_places(call: GroupCall, parts: Sequence[RequestPart], answers: Sequence[Any]) -> ProtocolMessage | None:
    """The request again, with the offsets of groups named whose parts were answered by `ManyOffsets`; None if no part
    was."""
    if not any(map(_is_many, answers)):
        return None
    many = {part.group_id: answer.topics for part, answer in zip(parts, answers, strict=True) if _is_many(answer)}
    request: OffsetFetchRequest = call.request
    if call.version < FETCH_GROUPS_SINCE:
        return _with(request, topics=many[request.group_id])
    groups = [_with(group, topics=many.get(group.group_id, group.topics)) for group in request.groups]
    return _with(request, groups=groups)


def _is_many(answer: ProtocolMessage) -> bool:
    return isinstance(answer, ManyOffsets)


def joined(call: GroupCall, answers: Sequence[Any]) -> ProtocolMessage:
    """The answer to a call, from those to its parts."""
    if not answers:
        return refused(call, ErrorCode.NONE)  # without items, the shape of the answer is all there is
    first: ProtocolMessage = answers[0]
    match first:
        case DescribeGroupsResponse():
            return DescribeGroupsResponse(groups=[answer.groups[0] for answer in answers])
        case OffsetFetchResponse(groups=[_, *_]):
            return OffsetFetchResponse(groups=_joined_groups([answer.groups[0] for answer in answers]))
        case DeleteGroupsResponse():
            return DeleteGroupsResponse(results=[answer.results[0] for answer in answers])
        case OffsetCommitResponse():
            return OffsetCommitResponse(topics=_joined_topics(answers))
        case OffsetFetchResponse() | OffsetDeleteResponse():
            failed: ProtocolMessage | None = next((answer for answer in answers if answer.error_code), None)
            return _with(first, topics=_joined_topics(answers)) if failed is None else failed
    assert len(answers) == 1, f"{type(first).__name__} answers no request that is divided"
    return first


def _joined_groups(found: Sequence[OffsetFetchResponseGroup]) -> list[OffsetFetchResponseGroup]:
    groups: list[OffsetFetchResponseGroup] = []
    cut: dict[str, list[OffsetFetchResponseGroup]] = {}
    for group in found:
        if groups and groups[-1].group_id == group.group_id:
            cut.setdefault(group.group_id, [groups[-1]]).append(group)
        else:
            groups.append(group)
    return [_joined_group(cut[group.group_id]) if group.group_id in cut else group for group in groups]


def _joined_group(parts: Sequence[OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
    failed = next((part for part in parts if part.error_code), None)
    if failed is not None:
        return failed
    return OffsetFetchResponseGroup(group_id=parts[0].group_id, topics=_joined_topics(parts))


def _joined_topics(answers: Sequence[Any]) -> list[Any]:
    topics: list[Any] = []
    for answer in answers:
        rest = list(answer.topics)
        if topics and rest and topics[-1].name == rest[0].name:  # the topic was cut here
            topics[-1] = _with(topics[-1], partitions=[*topics[-1].partitions, *rest.pop(0).partitions])
        topics += rest
    return topics
