"""A bookie of a cluster whose store is damaged serves what can be read, and is repaired from its copies.

Damage that leaves nothing to read is refused in one line. No client gets a wrong entry, or misses one.
"""

from __future__ import annotations

import os
import random
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from damages import PAGE, Damage, draw, used_bytes
from judged import Outcome, file_of, last_line
from test_damage import show

from gnomon import OpenMode, connect_ledgers
from gnomon.bookie.errors import DigestMismatch, NoSuchEntry
from gnomon.bookie.ids import ANY_SESSION, BookieId, EntryId
from gnomon.bookie.storage.page_walk import DAMAGED_FILE
from gnomon.testing.daemon import Daemon, DaemonNotStarted
from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses

PLACES = int(os.environ.get("PLACES", "12"))
SEED = int(os.environ.get("SEED", "1"))
BOOKIES_IN_PLACES = 20
"""Of so many places one is of a bookie of a cluster."""
NAME = BookieId("bookie-1")
ENTRIES = 60
REPAIR_SECONDS_MAX = 60.0
REPORTS_SOON = ("--set", "bookie.garbage_interval_seconds=0.5")


def payload_of(number: int) -> bytes:
    return b"entry %d " % number * (1 + number % 7 * 60)


class DamagedBookie:
    """One bookie of a cluster, damaged and repaired again and again."""

    def __init__(self, cluster: LedgerProcesses, older: Path) -> None:
        self._cluster, self._older = cluster, older
        self.written = 0
        trio.run(self._write)
        assert self.daemon.stop() == 0
        shutil.copytree(self.store, older)
        cluster.start_bookie(NAME, *REPORTS_SOON)

    @property
    def directory(self) -> Path:
        return self._cluster.directory / NAME

    @property
    def store(self) -> Path:
        return self.directory / "bookie"

    @property
    def daemon(self) -> Daemon:
        return self._cluster.daemons[NAME]

    def round(self, damage: Damage) -> Outcome:
        """Damages the stopped bookie, starts it, and reads everything; a refused bookie gets its sound store back."""
        trio.run(self._write)
        assert self.daemon.stop() == 0
        sound = self.directory.with_name("sound")
        shutil.rmtree(sound, ignore_errors=True)
        shutil.copytree(self.directory, sound)
        damage.do(self.store, self._older)
        outcome, start = Outcome(), len(self.daemon.log.read_text())
        try:
            self._cluster.start_bookie(NAME, *REPORTS_SOON)
        except DaemonNotStarted as error:
            outcome.kind = "refused"
            outcome.words.append(last_line(str(error)))
            if not outcome.words[0].startswith("Error: "):
                outcome.faults.append(f"ended without a word: {error}")
            shutil.rmtree(self.directory)
            shutil.copytree(sound, self.directory)
            self._cluster.start_bookie(NAME, *REPORTS_SOON)
        trio.run(self._read, outcome)
        self._await_repair(outcome)
        trio.run(self._read_here, outcome)
        log = self.daemon.log.read_text()[start:]
        outcome.check_log(log)
        if "older_store" in log:
            outcome.kind = "repaired"
        if "store_salvaged" in log:
            outcome.words.append("store_salvaged")
        shutil.rmtree(self._older)  # the next older copy: the bookie has begun a run since
        shutil.copytree(sound / "bookie", self._older)
        return outcome

    async def _write(self) -> None:
        async with connect_ledgers(self._cluster.metadata) as ledgers:
            mode = OpenMode.O_APPEND if self.written else OpenMode.O_CREATE
            ledger = await ledgers.open("ledger", mode)
            for number in range(self.written, self.written + ENTRIES):
                assert await ledger.add([payload_of(number)]) == number
            self.written += ENTRIES

    async def _read(self, outcome: Outcome) -> None:
        async with connect_ledgers(self._cluster.metadata) as ledgers:
            ledger = await ledgers.open("ledger")
            if ledger.last_add_confirmed != self.written - 1:
                outcome.faults.append(f"the ledger ends at {ledger.last_add_confirmed} of {self.written}")
            found = await ledger.read(EntryId(0), ledger.last_add_confirmed)
            if found != [payload_of(number) for number in range(len(found))]:
                outcome.faults.append("a wrong entry")

    def _await_repair(self, outcome: Outcome) -> None:
        until = time.monotonic() + REPAIR_SECONDS_MAX
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://{self.daemon.ready['admin']}/readyz"):
                    return
            except urllib.error.HTTPError as error:
                last = error.read().decode()
            time.sleep(0.1)
        outcome.faults.append(f"not repaired in {REPAIR_SECONDS_MAX} s: {last}")

    async def _read_here(self, outcome: Outcome) -> None:
        """Reads the entries of the repaired bookie from it alone.

        It may lack the last ones of a round: a writer waits for two of three bookies.
        """
        async with connect_ledgers(self._cluster.metadata) as ledgers:
            ledger = await ledgers.open("ledger")
            bookie = ledgers.bookies.get(NAME)
            assert bookie is not None
            for number in range(self.written):
                with trio.move_on_after(REPAIR_SECONDS_MAX) as repaired:
                    while True:
                        try:
                            stored = await bookie.read(ledger.id, EntryId(number), ANY_SESSION)
                            break
                        except DigestMismatch as error:
                            if str(error) not in outcome.words:
                                outcome.kind = "repaired"
                                outcome.words.append(str(error))
                        except NoSuchEntry:
                            stored = None
                            break
                        await trio.sleep(0.1)
                if repaired.cancelled_caught:
                    outcome.faults.append(f"entry {number} was not repaired in {REPAIR_SECONDS_MAX} s")
                elif stored is not None and stored.payload != payload_of(number):
                    outcome.faults.append(f"a wrong copy of entry {number}")


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DamagedBookie]:
    directory = tmp_path_factory.mktemp("cluster")
    with LedgerProcesses(directory / "c") as cluster:
        yield DamagedBookie(cluster, directory / "older")


def test_a_bookie_with_one_damaged_page_serves_what_it_can_and_is_repaired_from_its_copies(
    bookie: DamagedBookie,
) -> None:
    place = file_of(bookie.store).read_bytes().index(b"entry 2 entry 2")
    outcome = bookie.round(Damage("zeroed page", "bookie", place // PAGE * PAGE, place // PAGE * PAGE + PAGE))
    assert (outcome.kind, outcome.faults) == ("repaired", [])
    assert outcome.words == ["store_salvaged"]
    assert (bookie.store / "damaged.mdb").exists()


def test_a_bookie_that_found_a_damaged_page_in_its_last_run_makes_a_new_store_and_is_repaired(
    bookie: DamagedBookie,
) -> None:
    """A start does not look at the pages that only a walk reaches."""
    named = bookie.store / DAMAGED_FILE
    named.write_text("page 9 is damaged (ledgers: 5)\n")
    outcome = bookie.round(Damage("flipped bit", "bookie", 8 * (used_bytes(bookie.store) + PAGE)))  # an unused page
    assert (outcome.kind, outcome.faults, outcome.words) == ("repaired", [], ["store_salvaged"])
    assert named.read_text() == ""


def test_a_bookie_with_an_older_copy_of_its_disk_is_repaired(bookie: DamagedBookie) -> None:
    outcome = bookie.round(Damage("older copy", "bookie"))
    assert (outcome.kind, outcome.faults) == ("repaired", [])


def test_no_damage_of_a_bookie_loses_or_changes_an_entry_of_the_cluster(bookie: DamagedBookie) -> None:
    stream = random.Random(SEED)
    outcomes = []
    for _ in range(max(2, PLACES // BOOKIES_IN_PLACES)):
        damage = draw(stream, "bookie", used_bytes(bookie.store))
        outcome = bookie.round(damage)
        outcomes.append((f"{damage.kind:14}", outcome))
        assert outcome.faults == [], damage
    print(f"\n{len(outcomes)} damages of a bookie of a cluster, drawn with seed {SEED}:")
    show(outcomes)
