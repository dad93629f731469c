from __future__ import annotations

from uuid import UUID

import pytest

from gnomon.broker.partition import producers, refused_batches
from gnomon.broker.partition.producers import AwaitedBatches, Producers
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

ID = UUID(int=7).bytes
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def batch(first: int, producer_id: int = 5) -> memoryview:
    record = Record(offset_delta=0, value=b"value")
    return memoryview(
        build_batch([record], base_timestamp=0, producer_id=producer_id, producer_epoch=0, base_sequence=first)
    )


def judged(awaited: AwaitedBatches, first: int, producer_id: int = 5) -> object:
    """The outcome of a batch at a partition that knows no producer."""
    partition = Producers()
    partition.awaited = awaited
    return partition.check(producer_id, 0, first, first)


@pytest.mark.parametrize("ref", ["orders", ID], ids=["by name", "by id"])
def test_a_batch_sent_after_a_refused_one_waits_for_it(ref: str | bytes) -> None:
    refused = RefusedBatches()
    refused.of(ref, 0).refused_batch(batch(0), now_ms=1)
    awaited = refused.join("orders", ID, 0)
    assert judged(awaited, 1) is OUT_OF_ORDER
    assert judged(awaited, 0) is None


def test_other_partitions_and_other_producers_do_not_wait() -> None:
    refused = RefusedBatches()
    refused.of("orders", 0).refused_batch(batch(0), now_ms=1)
    assert judged(refused.join("orders", ID, 1), 1) is None
    assert judged(refused.join("orders", ID, 0), 1, producer_id=6) is None


def test_the_oldest_refused_batch_counts_whether_the_topic_was_named_or_given_by_id() -> None:
    refused = RefusedBatches()
    refused.of("orders", 0).refused_batch(batch(3), now_ms=1)
    refused.of(ID, 0).refused_batch(batch(4), now_ms=2)
    awaited = refused.join("orders", ID, 0)
    assert judged(awaited, 4) is OUT_OF_ORDER
    assert judged(awaited, 3) is None


def test_malformed_batches_and_batches_without_a_producer_are_not_awaited() -> None:
    awaited = AwaitedBatches()
    awaited.refused_batch(memoryview(b"garbage"), now_ms=1)
    awaited.refused_batch(batch(-1, producer_id=-1), now_ms=1)
    assert judged(awaited, 9) is None


def test_the_number_of_remembered_partitions_and_producers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "PARTITIONS_MAX", 2)
    monkeypatch.setattr(producers, "PRODUCERS_AWAITED_MAX", 2)
    refused = RefusedBatches()
    for partition in range(3):
        for producer_id in range(3):
            refused.of("orders", partition).refused_batch(batch(0, producer_id), now_ms=1)
    assert judged(refused.of("orders", 0), 1, producer_id=2) is None
    assert judged(refused.of("orders", 2), 1, producer_id=0) is None
    assert judged(refused.of("orders", 2), 1, producer_id=2) is OUT_OF_ORDER
