"""A driver of a writer: proposes staged batches, reads which proposal was decided, and applies the decision.

1. A driver begins with applying the last decision, which may be that of a driver that died.
2. A commit returns once its batch is decided and applied, by this driver or another one.
3. End offsets are asked after the staging and before the proposal: so what is staged later is never below them.
4. After a decision is applied, records are deleted in this order: staged ones below the ends that the decision
   recorded, then the proposals before the decision.
5. A proposal whose answer was lost is repeated: the second copy is void, or the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.producing import new_producer_id
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.spark.decisions import BatchVerdict, Decisions, Proposal, ProposedBatches, StagedBatch, first_decision
from gnomon.spark.writing.delivery import deliver
from gnomon.spark.writing.earlier_delivery import delivered_before
from gnomon.spark.writing.staging import MESSAGE_VERSION, StagedTask
from gnomon.spark.writing.writer_topic import PROPOSALS, StagedRecord, WriterTopic
from gnomon.wire.kafka.errors import ErrorCode

CONTENT_BYTES_MAX: Final = 512 << 10
"""A larger content of a proposal is staged, in parts of this size."""


class WriterFenced(Exception):
    """Another query owns the writer."""


class StagingLost(Exception):
    """Another driver may have deleted what this one has staged: the Spark batch has to run again."""


class OtherMessage(Exception):
    """The task runs another version of gnomon."""


class SinkDriver:
    """A driver of one writer; a batch is committed by one call.

    Args:
        warn: is called with a text for each batch that was written before.
        takes_over: whether the writer may belong to another query.
    """

    def __init__(
        self, cluster: KafkaBrokers, topic: WriterTopic, warn: Callable[[str], None], *, takes_over: bool = False
    ) -> None:
        self._cluster, self._topic, self._warn, self._takes_over = cluster, topic, warn, takes_over
        self.decisions = Decisions()
        self._read_to = 0
        self.decided_ms = 0
        """When the last decision was proposed, in milliseconds since 1970."""

    async def commit(self, query: str, batch: int, tasks: Sequence[StagedTask]) -> BatchVerdict:
        """Has the rows of a Spark batch written, once; returns OK or ALREADY.

        Raises:
            WriterFenced: the writer belongs to another query.
            OtherMessage: a task has another version of gnomon.
            StagingLost: see there; nothing is decided.
            DeliveryFailed: of a decision; it remains, and the next driver goes on.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`; the batch may be decided.
        """
        await self.recover()
        verdict = self._verdict(query, batch)
        if verdict is BatchVerdict.ALREADY:
            self._warn(f"batch {batch} of query {query!r} was written before: its rows are not written again")
            return verdict
        staged = await self._staged(tasks)
        if not staged:
            return BatchVerdict.OK
        while verdict is BatchVerdict.OPEN:
            verdict = await self._propose(query, batch, staged)
            await self._apply({})
        return verdict

    async def is_new(self) -> bool:
        """Whether nothing was decided; raises as `KafkaBrokers.retried`."""
        await self._read_through(await self._bound(LATEST), None)
        return self.decisions.last is None

    async def recover(self) -> None:
        """Applies the last decision, if it is not applied; raises as `commit`."""
        batches = await self.undelivered()
        if batches is not None:
            assert self.decisions.last is not None, "these are the batches of a decision"
            await self._apply(await delivered_before(self._cluster, self.decisions.last, batches, self.decided_ms))

    async def undelivered(self) -> ProposedBatches | None:
        """The batches of the last decision, unless it is applied; raises as `KafkaBrokers.retried`."""
        if await self.is_new():
            return None
        assert self.decisions.last is not None
        batches = await self._content(self.decisions.last)
        return None if batches is None or await self._is_applied(batches) else batches

    async def clean(self) -> None:
        """Deletes what the last decision that was read does not need once it is applied (invariant 4).

        Raises:
            RequestRefused, Unreachable: as `delete_records`.
        """
        assert self.decisions.last is not None, "`undelivered` has read one"
        await self._topic.delete_before(self.decisions.last.staging_ends)
        await self._topic.delete_before({PROPOSALS: self.decisions.last_offset})

    def _verdict(self, query: str, batch: int) -> BatchVerdict:
        verdict = self.decisions.verdict(query, batch, takes_over=self._takes_over)
        if verdict is BatchVerdict.FENCED:
            last = self.decisions.last
            assert last is not None, "a writer without a decision fences nobody"
            raise WriterFenced(
                f"writer {self._topic.writer!r} belongs to query {last.query!r}, which wrote its batch {last.batch}."
                " Was the checkpoint deleted? writerTakeOver=true continues with this query; another writer begins anew"
            )
        return verdict

    async def _staged(self, tasks: Sequence[StagedTask]) -> list[StagedBatch]:
        """The batches of all tasks in their order, those of their messages staged."""
        for task in tasks:
            if task.version != MESSAGE_VERSION:
                raise OtherMessage(
                    f"a task sends messages of version {task.version}, this driver knows {MESSAGE_VERSION}: install the"
                    " same gnomon for both"
                )
        inline = [each for task in tasks for each in task.inline]
        places = iter(await self._topic.stage(0, inline))
        return [each for task in tasks for each in (*task.staged, *(next(places) for _ in task.inline))]

    async def _propose(self, query: str, batch: int, staged: Sequence[StagedBatch]) -> BatchVerdict:
        """Proposes the batches once, and reads the proposals up to that one."""
        staged_from = _lowest(staged)
        if not self.decisions.keeps(staged_from):
            raise StagingLost(
                f"another driver of writer {self._topic.writer!r} was decided after these rows were staged, and may"
                " have deleted them: run the batch again"
            )
        places = [*self._topic.staging, *dict.fromkeys(each.target for each in staged)]
        ends = {place: end or 0 for place, end in (await self._ends(places)).items()}
        target_ends = {place: end for place, end in ends.items() if place.topic != self._topic.name}
        producer_id = self.decisions.next_producer_id
        proposal = Proposal(
            self.decisions.next_number,
            self.decisions.last_offset,
            query,
            batch,
            self._takes_over,
            await new_producer_id(self._cluster) if producer_id is None else producer_id,
            staged_from,
            {place.partition: ends[place] for place in self._topic.staging},
            self.decisions.owners_for(query),
            ProposedBatches(tuple(staged), target_ends).encode(),
        )
        if len(proposal.content) > CONTENT_BYTES_MAX:
            proposal = proposal._replace(
                content=b"", content_places=await self._topic.stage_content(proposal.content, CONTENT_BYTES_MAX)
            )
        offset = await self._topic.append(PROPOSALS, [proposal.encode()])
        if await self._read_through(offset + 1, proposal):
            return BatchVerdict.OK
        return self._verdict(query, batch)

    async def _ends(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        return await find_offsets(self._cluster, dict.fromkeys(places, LATEST))

    async def _read_through(self, stop: int, own: Proposal | None) -> bool:
        """Reads the proposals below an offset, and returns whether `own` is one of the decisions among them."""
        while self._read_to < stop:
            try:
                log = await self._proposals(stop)
            except RequestRefused as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                start = await self._bound(EARLIEST)
            else:
                start = log[0].offset
                if start == self._read_to:
                    return self._fold(log, own)
            self.decisions = Decisions()  # what follows was deleted: all that is left is read anew
            self._read_to = start
            stop = max(stop, await self._bound(LATEST))  # which is behind a decision (`decisions` invariant 4)
        return False

    async def _proposals(self, stop: int) -> list[StagedRecord]:
        """The records of the proposals that were not read; raises as `WriterTopic.read`."""
        async with aclosing(self._topic.read(PROPOSALS, self._read_to, stop)) as records:
            return [record async for record in records]

    def _fold(self, log: Sequence[StagedRecord], own: Proposal | None) -> bool:
        proposals = [(record.offset, Proposal.decode(record.value)) for record in log]
        begin = first_decision(proposals) if self.decisions.last is None else 0
        decided = False
        for (offset, proposal), record in zip(proposals[begin:], log[begin:], strict=True):
            if self.decisions.read(offset, proposal):
                decided |= proposal == own
                self.decided_ms = record.timestamp_ms
        self._read_to = log[-1].offset + 1
        return decided

    async def _bound(self, end: int) -> int:
        place = self._topic.place(PROPOSALS)
        return (await find_offsets(self._cluster, {place: end}))[place] or 0

    async def _is_applied(self, batches: ProposedBatches) -> bool:
        """Whether a staged batch of the last decision was deleted: that follows its application."""
        starts = await find_offsets(self._cluster, dict.fromkeys(self._topic.staging, EARLIEST))
        return any(
            offset < (starts[self._topic.place(partition)] or 0)
            for partition, offset in _lowest(batches.staged).items()
        )

    async def _content(self, decision: Proposal) -> ProposedBatches | None:
        """The batches of a decision; None if their list was deleted, which follows the application."""
        content = decision.content or await self._topic.staged_content(decision.content_places)
        return None if content is None else ProposedBatches.decode(content)

    async def _apply(self, applied: Mapping[TopicPartition, int]) -> None:
        """Applies the last decision and cleans up behind it (invariant 4).

        Args:
            applied: see `deliver`.
        """
        decision = self.decisions.last
        assert decision is not None, "there is a decision behind every proposal"
        batches = await self._content(decision)
        if batches is None or not await deliver(self._cluster, self._topic, decision, batches.staged, applied):
            return  # another driver has applied it, and cleans up
        await self.clean()


def _lowest(staged: Sequence[StagedBatch]) -> dict[int, int]:
    """The lowest offset in each staging partition."""
    found: dict[int, int] = {}
    for each in staged:
        found[each.staging_partition] = min(each.offset, found.get(each.staging_partition, each.offset))
    return found
