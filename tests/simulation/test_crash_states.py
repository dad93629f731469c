"""Power failures at every moment of a recorded run of the stores: no acknowledged write is lost, no group is torn.

The system calls are those of the product's own commits. The states that they may leave on a disk are enumerated; each
is opened and judged. `CRASH_STATES=6` in the environment tries six times as many; pytest's `-s` shows the figures.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from recorded_commits import SYNCED, SYNCED_AFTERWARDS, WITHOUT_METASYNC, WITHOUT_PROMISES, grew

from gnomon.testing.simulation.disk.crash_states import Verdicts, judge_in_processes
from gnomon.testing.simulation.disk.write_log import Event, Mark, NoCompiler, Write, read_log, record, replay

HERE = Path(__file__).parent
TIMES = int(os.environ.get("CRASH_STATES", "1"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
SHARES = 2
ENTRIES, METADATA = "entry_store_scenario.py", "metadata_store_scenario.py"
TABLES = "table_store_scenario.py"


class Recorded:
    """A recorded run of a scenario, and its judges."""

    def __init__(self, scenario: str, mode: str, folder: Path) -> None:
        self.scenario = scenario
        data = folder / "store" / "data.mdb"
        command = [sys.executable, str(HERE / scenario), "record", str(data.parent), mode, str(SEED)]
        try:
            self.log = record(command, data, folder)
        except NoCompiler as error:
            pytest.skip(str(error))
        self.events: list[Event] = read_log(self.log)
        assert replay(self.events) == data.read_bytes(), "the file was changed in a way that is not recorded"
        self.opened = next(at for at, event in enumerate(self.events) if isinstance(event, Mark))
        """The first event of the store in use; the events before it created the store."""

    def judged(self, states: int, *, begin: int | None = None, end: int | None = None, one_in: int = 1) -> Verdicts:
        """Judges at most `states` states between the events `begin` and `end`; default: all of the store in use.

        Args:
            one_in: judges one of this many windows between two syncs, with more states in each.
        """
        begin = self.opened if begin is None else begin
        end = len(self.events) if end is None else end
        moments = sum(isinstance(event, Write) and not event.durable for event in self.events[begin:end])
        settings = map(str, (self.log, SEED, 1 + states * one_in * TIMES // max(moments, 1), begin, end))
        judge = [sys.executable, str(HERE / self.scenario), "judge", *settings]
        verdicts = judge_in_processes([[*judge, str(share), str(SHARES * one_in)] for share in range(SHARES)], HERE)
        print(
            f"{self.scenario}: {verdicts.states} states, {len(verdicts.bad)} bad, "
            f"{verdicts.cpu_seconds:.1f} s of processors; the log: {self.log}"
        )
        return verdicts


def test_no_power_failure_loses_an_entry_that_the_store_acknowledged(tmp_path: Path) -> None:
    recorded = Recorded(ENTRIES, SYNCED, tmp_path)
    taken_ahead, beyond = grew(recorded.events)
    assert taken_ahead > 1
    assert beyond > 0
    verdicts = recorded.judged(16_500)
    assert verdicts.bad == []
    assert verdicts.states >= 10_000


def test_no_power_failure_loses_a_transaction_that_the_metadata_store_acknowledged(tmp_path: Path) -> None:
    verdicts = Recorded(METADATA, SYNCED, tmp_path).judged(1_000)
    assert verdicts.bad == []
    assert verdicts.states >= 500


def test_no_power_failure_parts_the_entries_of_a_stored_table_from_their_position(tmp_path: Path) -> None:
    verdicts = Recorded(TABLES, SYNCED, tmp_path).judged(1_000)
    assert verdicts.bad == []
    assert verdicts.states >= 500


def test_a_store_opens_after_a_power_failure_during_its_creation(tmp_path: Path) -> None:
    recorded = Recorded(ENTRIES, SYNCED, tmp_path)
    verdicts = recorded.judged(200, begin=0, end=recorded.opened)
    assert verdicts.bad == []
    assert verdicts.states > 0


@pytest.mark.parametrize("mode", [SYNCED_AFTERWARDS, WITHOUT_METASYNC, WITHOUT_PROMISES])
def test_a_cheaper_way_to_commit_is_found_to_lose_data(tmp_path: Path, mode: str) -> None:
    verdicts = Recorded(ENTRIES, mode, tmp_path).judged(700, one_in=8)
    assert len(verdicts.bad) > verdicts.states // 100
