"""Appends record batches that are encoded already, each with a Produce request of its own that waits for all copies."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.connection import KafkaClientConnection, PendingResponse
from gnomon.client.kafka.errors import check
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_VERSION: Final = 9
_PRODUCER_ID_VERSION: Final = 4
_TIMEOUT_MS: Final = 9_000
_ALL_COPIES: Final = -1


class AppendAnswer(NamedTuple):
    """The answer to one append."""

    code: ErrorCode
    base_offset: int
    text: str | None


def send_batch(leader: KafkaClientConnection, place: TopicPartition, batch: bytes) -> PendingResponse:
    """Sends a batch without waiting for its answer, which `outcome_of` takes."""
    data = TopicProduceData(
        name=place.topic, partition_data=[PartitionProduceData(index=place.partition, records=batch)]
    )
    return leader.send(ProduceRequest(acks=_ALL_COPIES, timeout_ms=_TIMEOUT_MS, topic_data=[data]), _VERSION)


async def outcome_of(leader: KafkaClientConnection, pending: PendingResponse) -> AppendAnswer:
    """The answer to a sent batch.

    Raises:
        Unreachable: none came, so the batch may be in the log.
    """
    answer = cast(ProduceResponse, await leader.wait(pending))
    found = answer.responses[0].partition_responses[0]
    try:
        code = ErrorCode(found.error_code)
    except ValueError:
        return AppendAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, -1, f"error {found.error_code} of a newer broker")
    return AppendAnswer(code, found.base_offset, found.error_message)


async def append(cluster: KafkaBrokers, place: TopicPartition, batch: bytes) -> int:
    """Appends a batch without a producer, and returns its base offset. After a lost answer it is in the log twice.

    Raises:
        RequestRefused, Unreachable: as `KafkaBrokers.retried`; the batch may be in the log.
    """

    async def attempt() -> int:
        leader = await cluster.leader(*place)
        outcome = await outcome_of(leader, send_batch(leader, place, batch))
        check(outcome.code, f"partition {place.partition} of topic {place.topic!r}", outcome.text)
        return outcome.base_offset

    return await cluster.retried(place.topic, attempt)


async def new_producer_id(cluster: KafkaBrokers) -> int:
    """A producer id that no other producer has; raises as `KafkaBrokers.retried`."""

    async def attempt() -> int:
        broker = await cluster.any_broker()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await broker.request(request, _PRODUCER_ID_VERSION, InitProducerIdResponse)
        check(answer.error_code, "a producer id")
        return answer.producer_id

    return await cluster.retried("", attempt)
