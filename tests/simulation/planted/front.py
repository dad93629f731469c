"""Bugs in the parts that clients use: Kafka's connections and requests, groups, topics."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pytest

from gnomon.broker.groups import group
from gnomon.broker.groups.offsets import GroupOffsets
from gnomon.broker.groups.turn import Turn
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.kafka.connections.connection import KafkaConnection
from gnomon.broker.kafka.connections.server import KafkaServer
from gnomon.broker.partition.partition import Partition
from gnomon.broker.producer_ids import ProducerIds
from gnomon.broker.state_logs import PartitionStateLog
from gnomon.runtime.loop.paced import PacedTasks
from gnomon.wire.kafka.schema import MalformedMessage

from planted.planted_bug import planted


@planted(
    "refusals without a later commit are never sent",
    breaks="broker.partition.readable 2",
    found_by="tests/broker/kafka/test_fetch.py::"
    "test_a_poll_cut_short_by_another_request_still_waits_for_its_partition_to_open",
)
def refusals_not_flushed(patch: pytest.MonkeyPatch) -> None:
    """Clients retry after a timeout, so that the bug costs them seconds and no record."""
    patch.setattr(Partition, "notify_change", lambda partition: partition._advanced(partition))


@planted(
    "answers leave in the order in which they are ready",
    breaks="broker.kafka.connections.connection, reply order",
    quick=True,
)
def answers_out_of_order(patch: pytest.MonkeyPatch) -> None:
    def replied(self: Any, exchange: Any, chunks: Any, flush: bool) -> None:
        exchange.cut_short = None
        if self.closed_by_peer or exchange not in self._exchanges:
            return
        self._exchanges.remove(exchange)
        self._exchanges.appendleft(exchange)
        self._leave(exchange, chunks)
        if flush:
            self.flush()

    patch.setattr(KafkaConnection, "replied", replied)


@planted(
    "a request is received over one whose batches are still being appended",
    breaks="broker.kafka.connections.connection 6",
)
def next_request_received(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KafkaConnection, "hold", lambda connection, exchange: None)


@planted(
    "a task of a partition is lost if too many start in one turn",
    breaks="broker.in_use.partitions_in_use 4",
    found_by="tests/runtime/test_paced.py::test_many_tasks_start_in_their_order_and_few_in_a_turn",
)
def tasks_lost(patch: pytest.MonkeyPatch) -> None:
    start_soon = PacedTasks.start_soon

    def losing(tasks: Any, work: Any, /, *args: Any) -> None:
        if len(tasks._waiting) < tasks._per_turn:
            start_soon(tasks, work, *args)

    patch.setattr(PacedTasks, "start_soon", losing)


@planted("a group's offset is seen before it is durable", breaks="broker.groups.offsets 1")
def offsets_seen_early(patch: pytest.MonkeyPatch) -> None:
    begin = GroupOffsets.begin

    def early(offsets: Any, record: Any) -> None:
        begin(offsets, record)
        offsets.apply(record)

    patch.setattr(GroupOffsets, "begin", early)


@planted("a commit of offsets is answered before it is durable", breaks="broker.groups.turn 2", quick=True)
def commit_answered_early(patch: pytest.MonkeyPatch) -> None:
    append = Turn.append

    def early(turn: Any, records: Any, replies: Any = ()) -> None:
        turn.decision.replies += replies
        append(turn, records)

    patch.setattr(Turn, "append", early)


@planted("a machine whose append failed is kept", breaks="broker.coordination.hosted_machine 2")
def failed_machine_kept(patch: pytest.MonkeyPatch) -> None:
    append = PartitionStateLog.append

    def never_failing(log: Any, records: Any, done: Any) -> None:
        append(log, records, lambda base_offset, error: done(0 if error else base_offset, None))

    patch.setattr(PartitionStateLog, "append", never_failing)


@planted(
    "a subscription that cannot be read is taken for one that reads nothing",
    breaks="broker.groups.group, topics_read",
    found_by="tests/broker/groups/test_subscriptions_machine.py::"
    "test_offsets_are_deleted_by_the_subscriptions_of_members_in_every_form",
)
def unreadable_subscription_reads_nothing(patch: pytest.MonkeyPatch) -> None:
    def readable(metadata: Any) -> list[str]:
        try:
            return subscribed_topics(metadata)
        except MalformedMessage:
            return []

    subscribed_topics = group.subscribed_topics
    patch.setattr(group, "subscribed_topics", readable)


@planted("a machine's log is trimmed to after its snapshot", breaks="broker.coordination.state_machine 5", quick=True)
def trimmed_too_far(patch: pytest.MonkeyPatch) -> None:
    trim = PartitionStateLog.trim
    patch.setattr(PartitionStateLog, "trim", lambda log, before: trim(log, log._partition.log.high_watermark))


@planted("a block of producer ids is not written down", breaks="broker.producer_ids")
def producer_ids_again(patch: pytest.MonkeyPatch) -> None:
    async def unwritten(ids: Any) -> int:
        ids._next += 1
        return ids._next - 1

    patch.setattr(ProducerIds, "next", unwritten)


@planted("routes to a deleted topic's partitions are kept", breaks="broker.in_use.routes 2")
def routes_kept(patch: pytest.MonkeyPatch) -> None:
    to_produce = Routes.to_produce
    produced_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def keeping(routes: Any, ref: Any, index: int) -> Any:
        found = produced_to.setdefault(routes, {})
        if (ref, index) not in found:
            found[ref, index] = to_produce(routes, ref, index)
        return found[ref, index]

    patch.setattr(Routes, "to_produce", keeping)


@planted("a stopping node waits for ever for its connections", breaks="broker.standalone 2")
def drain_hangs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gnomon.broker.kafka.connections.server.DRAIN_SECONDS", 1e6)

    async def drain(server: Any) -> None:
        while True:
            await server._clock.sleep(1.0)

    patch.setattr(KafkaServer, "drain", drain)
