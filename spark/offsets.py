"""Offsets of many partitions: their JSON, the bounds of a read, and the part of a backlog that one batch takes.

The JSON, the options and their meaning are those of Spark's Kafka connector, so that a job and its checkpoint can move
from one to the other.

1. Offsets survive encoding and parsing; equal offsets have equal texts.
2. A batch takes at most `maxOffsetsPerTrigger` offsets, and exactly as many if the backlog has them. Each partition
   takes its share of the backlog. Partitions whose share is below one offset take one in turn, so none waits for ever.
3. No partition moves backward, and none moves beyond its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from gnomon.client.kafka.topic_partition import EARLIEST, TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int]
Nested: TypeAlias = dict[str, dict[str, int]]


class BadOption(ValueError):
    """An option cannot be used; the text names it, its value and the values that it takes."""


def nested(offsets: Offsets) -> Nested:
    """The offsets as Spark keeps them, in order: `{"orders":{"0":23,"1":7}}`."""
    topics: Nested = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def flat(topics: Nested) -> dict[TopicPartition, int]:
    """Undoes `nested`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(option: str, text: str, lowest: int = EARLIEST) -> dict[TopicPartition, int]:
    """The offsets of a JSON text.

    Args:
        option: the option that has this text, for errors.
        lowest: the lowest number that is allowed: EARLIEST, or 0 for timestamps and for offsets that exist.

    Raises:
        BadOption: the text is not of this form.
    """
    form = f'{option}={text!r:.200}: expected JSON of topics, partitions and numbers such as {{"orders":{{"0":23}}}}'
    offsets = {}
    for topic, partitions in _members(text, form).items():
        if not isinstance(partitions, dict) or not partitions:
            raise BadOption(f"{form}; topic {topic!r:.100} has no partitions")
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not partition.isascii() or int(partition) >= 1 << 31:
                raise BadOption(f"{form}; {partition!r:.100} is no partition")
            if type(offset) is not int or not lowest <= offset < 1 << 63:
                raise BadOption(f"{form}; {offset!r:.100} of partition {partition} is no number from {lowest} on")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def parse_assignment(option: str, text: str) -> list[TopicPartition]:
    """The partitions of `{"orders":[0,1]}`, in order.

    Raises:
        BadOption: the text is not of this form.
    """
    form = f'{option}={text!r:.200}: expected JSON of topics and partitions such as {{"orders":[0,1]}}'
    found = set()
    for topic, partitions in _members(text, form).items():
        if not isinstance(partitions, list) or not partitions:
            raise BadOption(f"{form}; topic {topic!r:.100} has no partitions")
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition < 1 << 31:
                raise BadOption(f"{form}; {partition!r:.100} is no partition")
            found.add(TopicPartition(topic, partition))
    return sorted(found)


def _members(text: str, form: str) -> dict[str, Any]:
    try:
        members = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise BadOption(f"{form}; {error}") from None
    if not isinstance(members, dict) or not members:
        raise BadOption(form)
    return members


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def backlog(start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """The offsets between `start` and `end` of each partition that has some; one without a start begins at 0."""
    sizes = {place: offset - start.get(place, 0) for place, offset in end.items()}
    return {place: size for place, size in sizes.items() if size > 0}


def admitted(start: Offsets, end: Offsets, offsets_max: int | None = None) -> dict[TopicPartition, int]:
    """The end of the next batch (invariants 2 and 3).

    Args:
        start: where it begins, of every partition of `end`.
        end: the end of each partition's log.
        offsets_max: `maxOffsetsPerTrigger`; None for no limit.
    """
    sizes = backlog(start, end)
    total = sum(sizes.values())
    if offsets_max is None or total <= offsets_max:
        return {place: max(offset, start[place]) for place, offset in end.items()}
    shares = {place: size * offsets_max // total for place, size in sizes.items()}
    left = offsets_max - sum(shares.values())
    # The rest goes to partitions without a share, in turn, then to those that lost most by rounding.
    none = sorted(place for place, share in shares.items() if not share)
    turn = sum(start[place] for place in end) // offsets_max % (len(none) or 1)
    some = sorted(shares.keys() - none, key=lambda place: (-(sizes[place] * offsets_max % total), place))
    for place in [*none[turn:], *none[:turn], *some][:left]:
        shares[place] += 1
    return {place: start[place] + shares.get(place, 0) for place in end}
