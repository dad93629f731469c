"""The judge of shadows: which entries count as confirmed while claims of a ledger fail or are not answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.log.entry import EntryKind, LeaderEpoch, Offset, pack_header
from gnomon.log.topic import TOPICS_PREFIX
from gnomon.metadata.client import Delete, Put
from gnomon.testing.storms.shadows.source_truth import SourceTruth

LEDGER: Any = SimpleNamespace(id=LedgerId(28), name="topics/ab/0/0", session=SessionId(1))
LAST = EntryId(0)
PAYLOAD = pack_header(EntryKind.BATCH, LeaderEpoch(0), Offset(0), Offset(1), Offset(1), 0, 0, -1)


class FailedAtOnce:
    """A simulation that raises what a judge has found."""

    class coverage:
        @staticmethod
        def count(name: str) -> None:
            assert name

    def fail(self, name: str, error: AssertionError) -> None:
        raise error


@pytest.fixture
def truth() -> SourceTruth:
    truth = SourceTruth(FailedAtOnce())
    truth.appended(LEDGER, LAST, PAYLOAD)
    return truth


def read_last(truth: SourceTruth) -> None:
    truth.read(LEDGER, LAST, memoryview(PAYLOAD))


def test_an_entry_that_nobody_confirmed_is_not_read(truth: SourceTruth) -> None:
    with pytest.raises(AssertionError, match="the last confirmed one is -1"):
        read_last(truth)


def test_the_last_entry_of_a_claim_without_an_answer_may_be_read(truth: SourceTruth) -> None:
    truth.claiming(LEDGER.id, LAST)
    read_last(truth)


def test_a_failed_claim_confirms_nothing(truth: SourceTruth) -> None:
    truth.claiming(LEDGER.id, LAST)
    truth.not_claimed(LEDGER.id, LAST)
    with pytest.raises(AssertionError, match="the last confirmed one is -1"):
        read_last(truth)


def test_a_failed_claim_leaves_an_earlier_one_with_the_same_last_entry(truth: SourceTruth) -> None:
    truth.claiming(LEDGER.id, LAST)  # not answered: the record may have changed
    truth.claiming(LEDGER.id, LAST)
    truth.not_claimed(LEDGER.id, LAST)
    read_last(truth)


FIRST, TOPIC_KEY = "ledgers/topics/ab/0/0", f"{TOPICS_PREFIX}public/default/orders"


@pytest.mark.parametrize("topic_deleted", [True, False])
def test_the_last_ledger_of_a_partition_is_deleted_only_with_its_topic(truth: SourceTruth, topic_deleted: bool) -> None:
    made = [Put(TOPIC_KEY, msgpack.packb({"id": b"\xab"})), Put(FIRST, b"")]
    truth.transaction(made, lambda key: True)
    deletion, left = [Delete(FIRST)], set() if topic_deleted else {TOPIC_KEY}
    if topic_deleted:  # the transaction behind this one, with the same commit, has deleted the topic
        truth.transaction(deletion, left.__contains__)
    else:
        with pytest.raises(AssertionError, match="not at the front"):
            truth.transaction(deletion, left.__contains__)
