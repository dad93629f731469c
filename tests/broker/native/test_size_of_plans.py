"""The largest answer with a read plan, of a partition with more segments than a test could write."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from gnomon.bookie.ids import FIRST_SESSION, BookieId, EntryId, LedgerId
from gnomon.bookie.record import Fragment, LedgerRecord, LedgerState, Quorum, ledger_key
from gnomon.broker.native import read_planner
from gnomon.broker.partition.readable import Readable
from gnomon.log.entry import Offset
from gnomon.log.plans.read_plan import PlannedPartition, decode_plan, plain_plan
from gnomon.metadata.client import KeyValue, Metadata, Revision
from gnomon.testing.simulation.simulation import Simulation, simulate

RECORD = LedgerRecord(
    Quorum(3, 3, 2),
    (Fragment(EntryId(0), FIRST_SESSION, tuple(BookieId(f"bookie-{number}") for number in range(3))),),
    state=LedgerState.SEALED,
    last_entry=EntryId(0),
    length_bytes=100,
)


async def payload_bytes(first: EntryId, last: EntryId) -> int:
    return 100


def log_of(segments: int) -> Readable:
    """A partition with this many segments, each of one offset."""
    ledgers = [
        SimpleNamespace(
            name=f"{at:09}", id=LedgerId(at + 1), record=RECORD, start_entry=EntryId(0), payload_bytes=payload_bytes
        )
        for at in range(segments)
    ]
    listed = [
        SimpleNamespace(base_offset=Offset(at), next_offset=Offset(at + 1), ledger=ledger)
        for at, ledger in enumerate(ledgers)
    ]
    log = SimpleNamespace(start_offset=Offset(0), high_watermark=Offset(segments))
    return cast(Readable, SimpleNamespace(segments=listed, segment_of=lambda offset: int(offset), log=log))


async def stored(metadata: Metadata, keys: Iterable[str]) -> dict[str, KeyValue]:
    """The records of these ledgers."""
    value = RECORD.encode()
    revisions = {key: Revision(int(key.removeprefix(ledger_key(""))) + 1) for key in keys}
    return {key: KeyValue(key, value, revision, revision, 1) for key, revision in revisions.items()}


def answer(monkeypatch: pytest.MonkeyPatch, *segments: int) -> dict[int, PlannedPartition]:
    """The partitions of an answer about whole logs with so many segments."""
    monkeypatch.setattr(read_planner, "read_many", stored)

    async def scenario(simulation: Simulation) -> list[Any]:
        made = read_planner._Answer(cast(Any, SimpleNamespace(metadata=None)), simulation.clock)
        for index, count in enumerate(segments):
            partition = log_of(count)
            assert partition.log is not None
            made.add(index, partition, partition.log, Offset(0), Offset(1 << 40))
        await made.complete()
        return made.partitions

    return decode_plan(plain_plan(UUID(int=1), "c", simulate(1, scenario).result, ())).partitions


def test_an_answer_has_10_000_segments_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 3 of `read_planner`: over all partitions, and each has the first segments of its range."""
    found = answer(monkeypatch, 6_000, 6_000, 5)
    assert {index: len(each.segments) for index, each in found.items()} == {0: 6_000, 1: 4_000, 2: 0}
    assert [each.high_watermark for each in found.values()] == [6_000, 6_000, 5]
    assert [each.base_offset for each in found[1].segments] == list(range(4_000))
