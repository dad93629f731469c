"""The beginning of a table where the log does not say whether a snapshot fits; numbers cite those of `table_origin`."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.table_log import LogUnreadable
from gnomon.broker.tables.table_origin import TableHome, TableOrigin


class Newest:
    """A snapshot up to offset 3, which may be rejected."""

    def __init__(self) -> None:
        self.rejected: list[str] = []

    async def load(self) -> Any:
        return SimpleNamespace(end=3, identity=b"identity")

    def reject(self, reason: str) -> None:
        self.rejected.append(reason)


def origin_of(newest: Newest, identity: bytes | None) -> TableOrigin:
    """The origin of a table in memory, whose log has the batch with this identity before offset 3."""

    async def identity_before(end: int) -> bytes | None:
        return identity

    log = cast("Any", SimpleNamespace(identity_before=identity_before))
    home = TableHome(uuid.UUID(int=1), 0, TablesMemory(1 << 20), None)
    return TableOrigin(home, log, cast("Any", newest), cast("Any", None), cast("Any", None))


def test_a_snapshot_stays_while_the_log_does_not_have_its_last_batch() -> None:  # 1
    newest = Newest()
    bounds = cast("Any", SimpleNamespace(start_offset=0, high_watermark=9))
    with pytest.raises(LogUnreadable, match="the batch before offset 3 is trimmed, or the partition was opened again"):
        trio.run(origin_of(newest, None).begin, bounds)
    assert newest.rejected == []


def test_a_snapshot_of_another_life_of_the_log_is_rejected() -> None:  # 1
    newest = Newest()
    bounds = cast("Any", SimpleNamespace(start_offset=0, high_watermark=9))
    state, _ = trio.run(origin_of(newest, b"another").begin, bounds)
    assert state.applied == 0
    assert newest.rejected == ["the log has another batch before offset 3 than the one that was applied"]


def test_a_shadow_that_shows_less_than_a_snapshot_has_may_show_it_later() -> None:  # 4
    newest = Newest()
    bounds = cast("Any", SimpleNamespace(start_offset=0, high_watermark=2))
    begin = origin_of(newest, b"identity").begin
    with pytest.raises(LogUnreadable, match="it has applied the log to offset 3, and the log ends at 2"):
        trio.run(lambda: begin(bounds, grows=True))
    assert newest.rejected == []
    state, _ = trio.run(begin, bounds)
    assert state.applied == 0
    assert newest.rejected == ["it has applied the log to offset 3, and the log ends at 2"]
