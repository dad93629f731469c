"""Finds the batches of an old decision in its targets, whose leaders have forgotten the producer.

A leader forgets a producer that was silent for `producer.id.expiration.ms`; then it would append a repeat again. So
the batches of a decision that is half as old are looked for in the log before any is sent.
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing

from gnomon.client.kafka.admin import broker_config
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import LATEST, TopicPartition
from gnomon.spark.decisions import Proposal, ProposedBatches
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode


async def delivered_before(
    cluster: KafkaBrokers, decision: Proposal, batches: ProposedBatches, decided_ms: int
) -> dict[TopicPartition, int]:
    """The number of batches of an old decision that each target partition has; empty for a decision that is not old.

    Args:
        decided_ms: when it was proposed, in milliseconds since 1970.

    Raises:
        DeliveryFailed, RequestRefused, Unreachable: as `delivered_batches`.
    """
    expiration_ms = int(await broker_config(cluster, "producer.id.expiration.ms"))
    if cluster.clock.wall_ms() - decided_ms < expiration_ms / 2:
        return {}
    targets = Counter(each.target for each in batches.staged)
    return {place: await delivered_batches(cluster, decision, place, batches.target_ends[place]) for place in targets}


async def delivered_batches(cluster: KafkaBrokers, decision: Proposal, place: TopicPartition, start: int) -> int:
    """The number of batches of a decision that a target partition has.

    Args:
        start: an end of the partition before the decision.

    Raises:
        DeliveryFailed: records since the decision were deleted, so nobody knows whether its batches were among them.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    stop = (await find_offsets(cluster, {place: LATEST}))[place] or 0
    topic_id = (await cluster.retried(place.topic, lambda: cluster.topic(place.topic))).id
    own, found = (decision.producer_id, decision.producer_epoch), 0
    try:
        async with aclosing(read_batches(cluster, place, topic_id, start, stop)) as parts:
            async for part in parts:
                headers = map(parse_batch, part.batches)
                found += sum((header.producer_id, header.producer_epoch) == own for header in headers)
    except RequestRefused as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        raise DeliveryFailed(
            f"partition {place.partition} of topic {place.topic!r}: a decision of long ago may be in records that were"
            f" deleted since, from offset {start} on: forget the decision, or accept its rows twice"
        ) from None
    return found
