"""Bugs in what clients talk to: Kafka's connections and requests, groups, topics."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.broker import Broker
from gnomon.broker.groups.hosted_shard import HostedShard
from gnomon.broker.groups.offsets import GroupOffsets
from gnomon.broker.groups.turn import Turn
from gnomon.broker.kafka.connection import KafkaConnection
from gnomon.broker.kafka.server import KafkaServer
from gnomon.broker.offsets_partition import PartitionOffsetsLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.producer_ids import ProducerIds

from planted.planted_bug import planted


@planted(
    "refusals that no commit follows are never sent",
    breaks="broker.partition.partition 3",
    found_by="tests/broker/kafka/test_fetch.py::"
    "test_a_poll_that_another_request_hurries_still_waits_for_its_partition_to_open",
)
def refusals_not_flushed(patch: pytest.MonkeyPatch) -> None:
    """Clients ask again after their time-out, so that it costs them seconds and no record."""
    patch.setattr(Partition, "_changed", lambda partition: partition._advanced(partition))


@planted(
    "answers leave in the order in which they are ready", breaks="broker.kafka.connection, reply order", quick=True
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

    def early(turn: Any, records: Any, replies: Any = (), then: Any = None) -> None:
        turn.effects.replies += replies
        append(turn, records, (), then)

    patch.setattr(Turn, "append", early)


@planted("a shard whose append failed is kept", breaks="broker.groups.hosted_shard 2")
def failed_shard_kept(patch: pytest.MonkeyPatch) -> None:
    reported = HostedShard._reported
    patch.setattr(HostedShard, "_reported", lambda shard, state, error: reported(shard, state, None))


@planted("the offsets log is trimmed to behind its snapshot", breaks="broker.groups.hosted_shard 4", quick=True)
def trimmed_too_far(patch: pytest.MonkeyPatch) -> None:
    trim = PartitionOffsetsLog.trim
    patch.setattr(PartitionOffsetsLog, "trim", lambda log, before: trim(log, log._partition.log.high_watermark))


@planted("a block of producer ids is not written down", breaks="broker.producer_ids")
def producer_ids_again(patch: pytest.MonkeyPatch) -> None:
    async def take_block(ids: Any) -> None:
        ids._next, ids._end = 0, 1000

    patch.setattr(ProducerIds, "_take_block", take_block)


@planted("routes to a deleted topic's partitions are kept", breaks="broker.kafka.produce_route 2")
def routes_kept(patch: pytest.MonkeyPatch) -> None:
    end_topic = Broker._end_topic

    def keeping(broker: Any, topic: Any) -> None:
        routes = dict(broker._produced_to)
        end_topic(broker, topic)
        broker._produced_to.update(routes)

    patch.setattr(Broker, "_end_topic", keeping)


@planted("a stopping node waits for ever for its connections", breaks="broker.standalone 2")
def drain_hangs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gnomon.broker.kafka.server.DRAIN_SECONDS", 1e6)

    async def drain(server: Any) -> None:
        while True:
            await server._broker.world.clock.sleep(1.0)

    patch.setattr(KafkaServer, "drain", drain)
