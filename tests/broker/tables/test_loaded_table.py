"""A loaded table reads its log on, as another task may trim it meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_logs import log_with

from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.loaded_table import LoadedTable
from gnomon.broker.tables.table_log import LogUnreadable
from gnomon.broker.tables.table_state import TableState
from gnomon.log.entry import Offset
from gnomon.runtime.trio_world import TrioClock


def test_a_table_does_not_wait_for_records_that_are_trimmed_and_holds_no_other_task() -> None:
    async def main() -> None:
        log, bounds = log_with([], start=47, end=81)
        share: Any = SimpleNamespace(clock=TrioClock())
        state = TableState(MemoryEngine(TablesMemory(1 << 20)), Offset(47))
        table = LoadedTable(state, None, log, share, cast("Any", None))
        with trio.testing.assert_checkpoints():
            await table.read_on(bounds, Offset(81))
        bounds.start_offset = 81
        with pytest.raises(LogUnreadable, match="trimmed to offset 81, and 47 comes next"):
            await table.read_on(bounds, Offset(81))

    trio.run(main)
