from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gnomon.testing.simulation.disk.crash_states import crash_states, judge_in_processes
from gnomon.testing.simulation.disk.write_log import Event, Grow, Mark, Replace, SizeChange, Sync, Write

SECTOR = 512
A, B, C = (bytes([letter]) * SECTOR for letter in b"ABC")
ZERO = bytes(SECTOR)


def images(events: list[Event], per_moment: int = 200) -> set[bytes]:
    return {bytes(state.image) for state in crash_states(events, 1, per_moment)}


def test_a_synced_write_is_there_and_an_unsynced_one_may_be() -> None:
    assert images([Write(0, A, False)]) == {b"", ZERO, A}
    assert images([Write(0, A, False), Sync(), Write(SECTOR, B, False)]) == {b"", ZERO, A, A + ZERO, A + B}


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    found = images([Write(0, A, False), Write(SECTOR, B, False)])
    assert {A + B, ZERO + B, A + ZERO, A, b""} <= found


def test_a_write_is_torn_at_every_boundary_of_sectors_and_nowhere_else() -> None:
    found = images([Write(0, ZERO * 3, False), Sync(), Write(100, (A + B + C)[: 3 * SECTOR - 100], False)])
    kept = {image for image in found if len(image) == 3 * SECTOR and any(image)}
    assert len(kept) == 2**3 - 1
    sectors = [{image[at : at + SECTOR] for image in kept} for at in range(0, 3 * SECTOR, SECTOR)]
    assert [len(each) for each in sectors] == [2, 2, 2]


def test_a_durable_write_may_be_missing_only_before_the_next_event() -> None:
    events: list[Event] = [Write(0, A, True), Mark(b"told"), Write(SECTOR, B, False)]
    states = [(state.after, bytes(state.image)) for state in crash_states(events, 1, 50)]
    assert {image for after, image in states if after == 0} == {b"", ZERO, A}
    assert {image[:SECTOR] for after, image in states if after > 0} == {A}


def test_a_mark_counts_for_the_states_after_it() -> None:
    events: list[Event] = [Write(0, A, False), Mark(b"told"), Mark(b"told more"), Write(SECTOR, B, False)]
    assert {state.after for state in crash_states(events, 1, 50)} == {3, 4}


def test_a_file_that_replaces_another_is_there_whole_or_not_at_all() -> None:
    assert images([Write(0, A, False), Sync(), Replace(B + C)]) == {b"", ZERO, A, B + C}


def test_an_unsynced_size_may_be_the_previous_one() -> None:
    assert images([Write(0, A, False), Sync(), Grow(2 * SECTOR)]) == {b"", ZERO, A, A + ZERO}
    assert A + B in images([Write(0, A + B, False), Sync(), SizeChange(SECTOR)])


def test_no_state_is_given_twice_and_the_shares_together_have_all_states() -> None:
    events: list[Event] = []
    for number in range(6):
        events += [
            Write(number * 2 * SECTOR, A + B, False),
            Write(0, bytes([number]) * SECTOR, True),
            Mark(b"m"),
            Sync(),
        ]
    whole = [(state.name, bytes(state.image)) for state in crash_states(events, 1, 20)]
    assert len(set(whole)) == len(whole)
    shared = [(state.name, bytes(state.image)) for share in range(3) for state in crash_states(events, 1, 20, share, 3)]
    assert sorted(shared) == sorted(whole)
    assert [(state.name, bytes(state.image)) for state in crash_states(events, 1, 20)] == whole


JUDGE = """
import os, signal, sys
from gnomon.testing.simulation.disk.crash_states import crash_states, judge, print_verdicts
from gnomon.testing.simulation.disk.write_log import Write

def check(state):
    {check}

print_verdicts(judge(crash_states([Write(0, bytes(range(1, 5)) * 512, False)], 1, 30), check))
"""


def command(check: str) -> list[str]:
    return [sys.executable, "-c", JUDGE.format(check=check)]


def test_a_state_that_kills_its_judge_is_bad_and_the_others_are_judged(tmp_path: Path) -> None:
    total = len(list(crash_states([Write(0, bytes(range(1, 5)) * SECTOR, False)], 1, 30)))
    verdicts = judge_in_processes(
        [command("if len(state.image) == 512: os.kill(os.getpid(), signal.SIGSEGV)")], tmp_path
    )
    assert verdicts.states == total
    assert 0 < len(verdicts.bad) < total
    assert all("its judge died of SIGSEGV" in said for said in verdicts.bad)


def test_verdicts_of_several_judges_are_added(tmp_path: Path) -> None:
    total = len(list(crash_states([Write(0, bytes(range(1, 5)) * SECTOR, False)], 1, 30)))
    verdicts = judge_in_processes([command("pass"), command("raise ValueError('torn')")], tmp_path)
    assert verdicts.states == 2 * total
    assert len(verdicts.bad) == total
    assert all("ValueError: torn" in said for said in verdicts.bad)


def test_a_judge_that_fails_by_itself_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        judge_in_processes([[sys.executable, "-c", "raise SystemExit(3)"]], tmp_path)
