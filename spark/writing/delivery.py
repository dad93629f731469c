"""Sends the batches of a decision to their targets; several drivers may do so at the same time.

1. Each target partition gets its batches in the order of the decision, once (`applying`).
2. Staged batches that were deleted mean that the decision was applied completely: its driver deletes them afterwards.
3. The batches in flight of each target partition are in memory, and one group of staged batches.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final

import trio

from gnomon.client.kafka.brokers import RETRY, KafkaBrokers
from gnomon.client.kafka.connection import KafkaClientConnection, PendingResponse
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.producing import AppendAnswer, outcome_of, send_batch
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.runtime.world import Unreachable
from gnomon.spark.batches import stamped
from gnomon.spark.decisions import Proposal, StagedBatch
from gnomon.spark.writing.applying import PartitionApplication
from gnomon.spark.writing.writer_topic import StagedDamaged, StagedReader, WriterTopic

_SEQUENCES: Final = 1 << 31


class DeliveryFailed(Exception):
    """A target partition does not take the batches of a decision. The decision remains, and any driver may go on."""


async def deliver(
    cluster: KafkaBrokers,
    topic: WriterTopic,
    decision: Proposal,
    staged: tuple[StagedBatch, ...],
    applied: Mapping[TopicPartition, int],
) -> bool:
    """Sends the batches of a decision that are not in their targets yet.

    Args:
        staged: its batches.
        applied: the number of them that were found in target partitions.

    Returns:
        False if staged batches were deleted (invariant 2).

    Raises:
        DeliveryFailed: a target refuses for good, or for `patience_seconds`.
        StagedDamaged: a staged batch is not the one that was decided.
        RequestRefused, Unreachable: the staged batches cannot be read.
    """
    counts = Counter(batch.target for batch in staged)
    senders = {
        target: _PartitionSender(cluster, target, decision, PartitionApplication(count, applied.get(target, 0)))
        for target, count in counts.items()
    }
    failures: list[Exception] = []
    complete: list[bool] = []
    async with trio.open_nursery() as nursery:

        async def ending(work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            except (DeliveryFailed, StagedDamaged, RequestRefused, Unreachable) as failure:
                failures.append(failure)
                nursery.cancel_scope.cancel()

        async def feed() -> None:
            complete.append(await _feed(StagedReader(topic), staged, senders))
            if not complete[0]:
                nursery.cancel_scope.cancel()

        for sender in senders.values():
            nursery.start_soon(ending, sender.run)
        await ending(feed)
    if failures:
        raise failures[0]
    return complete[0]


async def _feed(
    reader: StagedReader, batches: tuple[StagedBatch, ...], senders: Mapping[TopicPartition, _PartitionSender]
) -> bool:
    """Hands each batch to its sender; returns False at the first batch that was deleted."""
    for batch in batches:
        data = await reader.get(batch)
        if data is None:
            return False
        await senders[batch.target].put(data, batch.records)
    for sender in senders.values():
        sender.end()
    return True


class _PartitionSender:
    """Sends the batches of one target partition."""

    def __init__(
        self, cluster: KafkaBrokers, target: TopicPartition, decision: Proposal, application: PartitionApplication
    ) -> None:
        self._cluster, self._target = cluster, target
        self._producer = decision.producer_id, decision.producer_epoch
        self._application = application
        self._put, self._take = trio.open_memory_channel[bytes](0)
        self._sequence = 0
        self._kept: dict[int, bytes] = {}
        """Batches that are not applied, by number."""
        self._taken = 0
        self._sent: deque[tuple[KafkaClientConnection, PendingResponse] | None] = deque()
        """The batches in flight; None for one that could not be sent."""
        self._trouble = "its leader does not answer"
        """Why the last one was not sent, or not answered."""

    async def put(self, data: bytes, records: int) -> None:
        """Takes the next batch, once there is room for it."""
        batch = stamped(data, *self._producer, self._sequence)
        self._sequence = (self._sequence + records) % _SEQUENCES
        await self._put.send(batch)

    def end(self) -> None:
        """There are no more batches."""
        self._put.close()

    async def run(self) -> None:
        """Sends until all batches are applied.

        Raises:
            DeliveryFailed: see `deliver`.
        """
        clock = self._cluster.clock
        failures, deadline = 0, inf
        while not self._application.is_done:
            number = self._application.next()
            if number is not None:
                await self._send(number)
                continue
            before = self._application.applied
            outcome = await self._answer()
            self._application.answered(None if outcome is None else outcome.code)
            if self._application.applied > before:
                failures, deadline = 0, inf
                continue
            deadline = min(deadline, clock.monotonic() + self._cluster.patience_seconds)
            if self._application.failure or clock.monotonic() >= deadline:
                raise DeliveryFailed(self._refusal(outcome))
            if not self._sent:
                failures += 1
                self._cluster.forget(self._target.topic)
                await clock.sleep(RETRY.seconds(failures))
        async for _ in self._take:
            pass  # a later decision is being applied: the rest is in the log

    async def _send(self, number: int) -> None:
        while self._taken <= number:
            self._kept[self._taken] = await self._take.receive()
            self._taken += 1
        self._kept = {each: batch for each, batch in self._kept.items() if each >= self._application.applied}
        try:
            leader = await self._cluster.leader(*self._target)
        except (Unreachable, RequestRefused) as error:
            self._trouble = str(error)
            self._sent.append(None)
            return
        self._sent.append((leader, send_batch(leader, self._target, self._kept[number])))

    async def _answer(self) -> AppendAnswer | None:
        """The answer to the oldest batch in flight, None if there is none."""
        sent = self._sent.popleft()
        if sent is None:
            return None
        try:
            return await outcome_of(*sent)
        except Unreachable as error:
            self._trouble = str(error)
            return None

    def _refusal(self, outcome: AppendAnswer | None) -> str:
        place = f"partition {self._target.partition} of topic {self._target.topic!r}"
        if outcome is None:
            return f"{place}: {self._trouble}"
        return f"{place}: {outcome.text or outcome.code.text} ({outcome.code.name})"
