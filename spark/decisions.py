"""The proposals of a sink's drivers, and the decisions among them.

The drivers of a writer append proposals to one partition. The order of that log decides, so all drivers agree.

1. The first valid proposal of number n + 1 behind decision n is decision n + 1. All others are void, for ever.
2. A proposal names the offset of the decision that it follows, and is valid behind that one only: if its query is the
   same and its batch id higher. One of another query is valid only if it takes the writer over; if the query owned the
   writer before, then with a higher batch id than its last one. The first proposal of a writer is valid.
3. A proposal is void if it has a batch that was staged below an end that the last decision recorded: the driver that
   applied the decision may have deleted the batch.
4. A log whose start was moved may begin with void proposals: a broker may show a start that nobody has asked for, while
   it deletes or if it dies meanwhile. Of all proposals that follow a decision before the start, the first one that
   follows the highest of them is the first decision; void ones follow lower ones. A driver that reads the log to an end
   that was asked for after its start finds it, since only records before a decision are deleted.
5. A batch id of a query is decided at most once. Each decision has the last batch of the last OWNERS_MAX owners.
6. The producer epoch of decision n is n modulo EPOCHS, and a new producer id begins whenever that is 0. So no two
   decisions have the same epoch of the same producer id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgpack

from gnomon.client.kafka.topic_partition import TopicPartition

EPOCHS: Final = 30_000
"""Epochs of one producer id; a broker accepts 32,767."""
OWNERS_MAX: Final = 100
_FORMAT: Final = 2
_ERRORS: Final = (ValueError, TypeError, IndexError, KeyError, msgpack.UnpackException)


class UnreadableProposal(Exception):
    """A record of a writer is no proposal, or not the content of one; the text says why."""


class StagedBatch(NamedTuple):
    """An encoded batch for one target partition, at its place among the staged records."""

    target: TopicPartition
    staging_partition: int
    offset: int
    records: int
    crc: int
    """CRC-32C of the encoded batch."""


class ProposedBatches(NamedTuple):
    """The content of a proposal."""

    staged: tuple[StagedBatch, ...]
    """In the order in which each target partition gets them."""
    target_ends: Mapping[TopicPartition, int]
    """The end offsets of the target partitions, read before the proposal was appended."""

    def encode(self) -> bytes:
        """The content as bytes."""
        topics = sorted({place.topic for place in self.target_ends} | {each.target.topic for each in self.staged})
        index = {topic: at for at, topic in enumerate(topics)}
        staged = [(index[target.topic], target.partition, *place) for target, *place in self.staged]
        ends = [(index[place.topic], place.partition, end) for place, end in sorted(self.target_ends.items())]
        packed: bytes = msgpack.packb((topics, staged, ends))
        return packed

    @classmethod
    def decode(cls, value: bytes) -> ProposedBatches:
        """Undoes `encode`.

        Raises:
            UnreadableProposal: the value has another form.
        """
        try:
            topics, staged, ends = msgpack.unpackb(value)
            found = cls(
                tuple(StagedBatch(TopicPartition(topics[at], target), *place) for at, target, *place in staged),
                {TopicPartition(topics[at], partition): end for at, partition, end in ends},
            )
        except _ERRORS as error:
            raise UnreadableProposal(f"{len(value)} bytes are no content of a proposal: {error}") from None
        if not found._is_sound():
            raise UnreadableProposal(f"{len(value)} bytes have no fields of a proposal's content")
        return found

    def _is_sound(self) -> bool:
        numbers = list(self.target_ends.values())
        for target, *place in self.staged:
            numbers += [target.partition, *place]
        return (
            _are_numbers(numbers)
            and all(type(place.topic) is str and type(place.partition) is int for place in self.target_ends)
            and all(type(each.target.topic) is str for each in self.staged)
        )


class Proposal(NamedTuple):
    """The batches that a driver wants to append to the targets, as number `number` of its writer."""

    number: int
    after: int
    """The offset of the decision that it follows; -1 for none."""
    query: str
    batch: int
    takes_over: bool
    """Whether it may follow a decision of another query."""
    producer_id: int
    staged_from: Mapping[int, int]
    """The lowest offset of its batches in each staging partition."""
    staging_ends: Mapping[int, int]
    """The end offset of each staging partition, read behind the staging and before the proposal."""
    owners: Mapping[str, int]
    """The last batch of each query that owned the writer before, the latest one last."""
    content: bytes
    """Encoded `ProposedBatches`; empty if it is staged."""
    content_places: tuple[tuple[int, int], ...] = ()
    """The staging partition and the offset of each part of a content that is staged, behind the ends."""

    @property
    def producer_epoch(self) -> int:
        """The epoch that its batches are stamped with (invariant 6)."""
        return self.number % EPOCHS

    def encode(self) -> bytes:
        """The value of its record."""
        head = (self.number, self.after, self.query, self.batch, self.takes_over, self.producer_id)
        lists = [list(each.items()) for each in (self.staged_from, self.staging_ends, self.owners)]
        packed: bytes = msgpack.packb((_FORMAT, *head, *lists, self.content, self.content_places))
        return packed

    @classmethod
    def decode(cls, value: bytes) -> Proposal:
        """Undoes `encode`.

        Raises:
            UnreadableProposal: the value is none, or of a newer gnomon.
        """
        try:
            fields: Any = msgpack.unpackb(value)
            if fields[0] != _FORMAT:
                raise UnreadableProposal(f"proposals of format {fields[0]!r:.20} are unknown: upgrade gnomon")
            _, number, after, query, batch, takes_over, producer_id, *lists, content, places = fields
            staged_from, ends, owners = lists
            found = cls(
                number,
                after,
                query,
                batch,
                takes_over,
                producer_id,
                dict(staged_from),
                dict(ends),
                dict(owners),
                content,
                tuple((partition, offset) for partition, offset in places),
            )
        except _ERRORS as error:
            raise UnreadableProposal(f"a record of {len(value)} bytes is no proposal: {error}") from None
        if not found._is_sound():
            raise UnreadableProposal(f"a record of {len(value)} bytes has no fields of a proposal")
        return found

    def _is_sound(self) -> bool:
        pairs = (*self.staged_from.items(), *self.staging_ends.items(), *self.content_places)
        return (
            _are_numbers(
                [
                    self.number,
                    self.after + 1,
                    self.batch,
                    self.producer_id,
                    *(number for pair in pairs for number in pair),
                ]
            )
            and _are_numbers(list(self.owners.values()))
            and all(type(query) is str for query in (self.query, *self.owners))
            and type(self.takes_over) is bool
            and type(self.content) is bytes
        )


def first_decision(log: Sequence[tuple[int, Proposal]]) -> int:
    """The index of the first decision (invariant 4).

    Args:
        log: all proposals with their offsets, from the start of the log on; not empty.
    """
    start = log[0][0]
    follows = [proposal.after if proposal.after < start else -2 for _, proposal in log]
    return follows.index(max(follows))


def _are_numbers(values: list[Any]) -> bool:
    return all(type(each) is int and each >= 0 for each in values)


class BatchVerdict(Enum):
    """The state of a batch of a query."""

    OK = "decided, by this driver's proposal"
    ALREADY = "this batch or a later one of the query was decided, by another driver's proposal"
    FENCED = "another query owns the writer"
    OPEN = "not decided: it may be proposed"


class Decisions:
    """The fold over the proposals of a writer, which are read in the order of their log."""

    def __init__(self) -> None:
        """Nothing is read."""
        self.last: Proposal | None = None
        """The last decision."""
        self.last_offset = -1
        """Its offset among the proposals."""

    def read(self, offset: int, proposal: Proposal) -> bool:
        """Reads the next proposal, and returns whether it is a decision."""
        decided = self._is_valid(proposal)
        if decided:
            self.last, self.last_offset = proposal, offset
        return decided

    def _is_valid(self, proposal: Proposal) -> bool:
        last = self.last
        if last is None:
            return True  # the first of a writer, or the one that `first_decision` has found
        if (proposal.number, proposal.after) != (last.number + 1, self.last_offset):
            return False
        if not self.keeps(proposal.staged_from):
            return False
        if proposal.batch <= self._last_batch(proposal.query):
            return False
        return proposal.query == last.query or proposal.takes_over

    def _last_batch(self, query: str) -> int:
        """The last decided batch of a query, -1 if there is none."""
        last = self.last
        if last is None:
            return -1
        return last.batch if query == last.query else last.owners.get(query, -1)

    def owners_for(self, query: str) -> dict[str, int]:
        """The field `owners` of the next proposal, if it is of this query."""
        if self.last is None:
            return {}
        owners = {name: each for name, each in self.last.owners.items() if name != self.last.query}
        owners[self.last.query] = self.last.batch
        owners.pop(query, None)
        return dict(list(owners.items())[-OWNERS_MAX:])

    def keeps(self, staged_from: Mapping[int, int]) -> bool:
        """Whether batches that were staged from these offsets on may still be proposed (invariant 3)."""
        ends = {} if self.last is None else self.last.staging_ends
        return all(offset >= ends.get(partition, 0) for partition, offset in staged_from.items())

    @property
    def next_number(self) -> int:
        """The number that the next proposal has."""
        return 1 if self.last is None else self.last.number + 1

    @property
    def next_producer_id(self) -> int | None:
        """The producer id of the next proposal; None if it takes a new one."""
        return None if self.last is None or self.next_number % EPOCHS == 0 else self.last.producer_id

    def verdict(self, query: str, batch: int, *, takes_over: bool = False) -> BatchVerdict:
        """The state of a batch that is not decided by a proposal of this driver: ALREADY, FENCED or OPEN.

        Args:
            takes_over: whether this driver may follow another query.
        """
        if batch <= self._last_batch(query):
            return BatchVerdict.ALREADY
        if self.last is None or self.last.query == query or takes_over:
            return BatchVerdict.OPEN
        return BatchVerdict.FENCED
