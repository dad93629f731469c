"""The log as its table reads it; numbers cite the invariants of `table_log`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_logs import log_with

from gnomon.bookie.ids import EntryId
from gnomon.broker.tables.table_log import LogUnreadable
from gnomon.client.errors import Compacted
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.log.log_positions import Batch, LogPositions
from gnomon.wire.kafka.records import Record, build_batch


def batch_at(offset: int) -> bytes:
    return build_batch([Record(key=b"k", value=b"v")], base_timestamp=1, base_offset=offset)


def test_a_loading_does_not_pass_over_records_that_are_trimmed() -> None:  # 2
    async def main() -> None:
        for start in (0, 16):  # a shadow that has not learned of the trim, and a log that has
            log, bounds = log_with([batch_at(16), batch_at(17)], start=start, end=18)
            with pytest.raises(LogUnreadable, match="the log was trimmed to offset 16, and 3 comes next"):
                await log.batches(bounds, Offset(3))
            assert await log.batches(bounds, Offset(16)) == [batch_at(16), batch_at(17)]

    trio.run(main)


def test_a_watch_does_not_pass_over_records_that_are_trimmed() -> None:  # 2
    async def main() -> None:
        for start in (0, 16):
            log, _ = log_with([batch_at(16), batch_at(17)], start=start, end=18)
            with pytest.raises(Compacted) as refused:
                await log.changes_from(Offset(3))
            assert refused.value.first == 16
            assert [batch.base_offset for batch in await log.changes_from(Offset(16))] == [16, 17]

    trio.run(main)


def test_a_batch_after_one_that_is_trimmed_has_not_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    later = Batch(Offset(0), EntryId(4), Offset(16), Offset(17), LeaderEpoch(1), memoryview(batch_at(16)))
    monkeypatch.setattr(LogPositions, "batch", lambda positions, offset, views: later)

    async def main() -> None:
        log, _ = log_with([batch_at(16)], start=0, end=17)
        assert await log.identity_before(Offset(3)) is None
        assert await log.identity_before(Offset(16)) is None
        assert await log.identity_before(Offset(17)) is not None

    trio.run(main)


def test_the_changes_of_a_batch_are_not_those_of_another_one() -> None:  # 2
    async def main() -> None:
        two = build_batch([Record(n, key=b"l", value=b"v") for n in range(2)], base_timestamp=1, base_offset=17)
        log, _ = log_with([batch_at(16), two], start=0, end=19)
        with pytest.raises(Compacted):
            await log.changes_at(3)
        with pytest.raises(LogUnreadable, match="no batch begins at offset 18, but one at 17"):
            await log.changes_at(18)
        assert [change.key for change in await log.changes_at(16)] == [b"k"]

    trio.run(main)
