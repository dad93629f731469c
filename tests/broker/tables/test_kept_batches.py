"""Batches that are kept while a table is loaded; numbers cite the invariants of `kept_batches`."""

from __future__ import annotations

import sys

import pytest

from gnomon.broker.tables import kept_batches
from gnomon.broker.tables.kept_batches import KeptBatch, KeptBatches
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import NO_TTL, KeyChange, TableChanges


def batch_at(offset: int, count: int = 1) -> KeptBatch:
    changes = [KeyChange(b"k%d" % number, b"v", NO_TTL, 0, False) for number in range(count)]
    return KeptBatch(Offset(offset), TableChanges(changes, None, []), -1)


def test_batches_are_kept_in_their_order_from_the_first_offset_on() -> None:  # 1
    kept = KeptBatches()
    assert (kept.first, kept.oldest, bool(kept)) == (None, None, False)
    assert [kept.begin(Offset(5)), kept.begin(Offset(9)), kept.first] == [5, 5, 5]
    batches = [batch_at(5), batch_at(6), batch_at(7)]
    for batch in batches:
        kept.add(batch)
    found = []
    while kept.oldest is not None:
        found.append(kept.oldest)
        kept.remove_oldest()
    assert found == batches
    assert kept.first == 5


def test_they_are_too_large_until_some_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    monkeypatch.setattr(kept_batches, "KEPT_BYTES_MAX", 1_000)
    kept = KeptBatches()
    kept.begin(Offset(0))
    for offset in range(4):
        kept.add(batch_at(offset))
    assert not kept.are_too_large
    kept.add(batch_at(4))
    assert kept.are_too_large
    kept.remove_oldest()
    assert not kept.are_too_large


def test_they_are_freed_one_by_one() -> None:
    kept = KeptBatches()
    kept.begin(Offset(0))
    for offset in range(3):
        kept.add(batch_at(offset))
    oldest = kept.oldest
    assert oldest is not None
    held = sys.getrefcount(oldest)
    steps = kept.end()
    assert (bool(kept), kept.first, kept.begin(Offset(7))) == (False, None, 7)
    assert sys.getrefcount(oldest) == held
    next(steps)
    assert sys.getrefcount(oldest) == held - 1
    assert len(list(steps)) == 2
