"""Two stages of Spark on a real cluster, while drivers, workers, brokers and bookies are killed: each row arrives once.

`make chaos-spark RUNS=100 [SEED=n]`. A run (`chaos_run.py`) has topics, checkpoints, a table and a seed of its own, the
n-th after the first one; it takes some 40 s. One cluster serves all runs. Drivers wait as spare ones, so that a
killed one is replaced at once, and are used again for the next run if they survive. `RUNS=1 SEED=n` draws the kills of
that run again, though their timing differs a little. The figures come with pytest's `-s`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from chaos_run import ChaosRun
from toolchains import CACHE, tool

from gnomon.testing.storms.drivers.driver_process import DriverProcess
from gnomon.testing.storms.drivers.kill_storm import KINDS
from gnomon.testing.storms.drivers.spare_drivers import SpareDrivers
from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses
from gnomon.testing.storms.processes.ledger_processes import wait_until

DRIVER = Path(__file__).with_name("spark_driver.py")
BROKERS = 2
BOOKIES = 3
SPARES = 2
START_SECONDS = 120.0
ARCHIVE_SECONDS = 300.0
FAILURE_LETTERS = 250
SETTINGS = {
    "broker_service.lease_seconds": 2,
    "bookie_service.lease_seconds": 2,
    "bookie.durability": "none",
    "log.segment.bytes": 64 << 10,
    "auditor.grace_seconds": 10,
    "auditor.interval_seconds": 1,
}


def say(text: str) -> None:
    print(text, flush=True)


class ChaosReport:
    """The figures of all runs."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.pauses: list[tuple[float, int]] = []
        """The longest pause of each run, and its seed."""
        self.rows = self.letters = 0
        self.failed: list[str] = []
        """The findings of failed runs, each with its seed and folder."""

    def add(self, run: ChaosRun, folder: Path) -> None:
        """Counts a run that has ended, and prints its line."""
        rows, letters = len(run.rows.table()), len(run.rows.letters())
        self.rows, self.letters = self.rows + rows, self.letters + letters
        self.kills += run.storm.counts
        failures = [failure for stage in run.stages for failure in stage.failures]
        self.failures.update(kind_of(failure) for failure in failures)
        self.pauses.append((run.progress.pause_seconds, run.seed))
        kills = ", ".join(f"{name} {count}" for name, count in sorted(run.storm.counts.items()))
        say(
            f"seed {run.seed}: {time.monotonic() - run.began:5.1f} s, {rows} rows, {letters} dead letters,"
            f" {len(failures)} failures; {kills}; {run.variant}; longest pause {run.pause()}"
        )
        for finding in run.findings:
            self.failed.append(f"seed {run.seed}, {folder}: {finding}")
            say(f"  FOUND: {finding}")

    def show(self) -> None:
        """Prints the totals."""
        say("\n" + "".join(f"{name:>18}" for name in (*(kind.name for kind in KINDS), "all kills")))
        counts = [self.kills[kind.name] for kind in KINDS]
        say("".join(f"{count:18}" for count in (*counts, sum(counts))))
        pauses = sorted(self.pauses)
        (half, _), (longest, seed) = pauses[len(pauses) // 2], pauses[-1]
        say(f"longest pause of the table: median of the runs {half:.1f} s, longest {longest:.1f} s (seed {seed})")
        say(f"{len(pauses)} runs, {self.rows} rows, {self.letters} dead letters")
        for failure, count in self.failures.most_common():
            say(f"{count:4} times a stage ended by itself: {failure}")


def kind_of(failure: str) -> str:
    """The first two lines of an error, without their numbers."""
    return re.sub(r"\d+", "n", " ".join(failure.splitlines()[:2]))[:FAILURE_LETTERS]


def archive_of_classes(folder: Path) -> Path:
    """The archive of the drivers' classes, which is made unless it exists; `folder` receives a log."""
    archive: Path = CACHE.parent / "chaos-spark" / "classes.jsa"
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not archive.exists():
        making = DriverProcess((DRIVER, archive), folder / "archive.log")
        try:
            making.wait(ARCHIVE_SECONDS)
        finally:
            making.kill()
    return archive


def test_each_row_arrives_once_whatever_is_killed(tmp_path: Path) -> None:
    tool("java", "Spark needs Java 17")
    pytest.importorskip("pyspark", reason="pip install 'gnomon[lake]'")
    runs, seed = int(os.environ.get("RUNS") or 1), int(os.environ.get("SEED") or random.randrange(10**6))
    say(f"\nseed {seed}, {runs} runs, folders in {tmp_path}")
    report, cluster_folder, drivers_folder = ChaosReport(), tmp_path / "cluster", tmp_path / "drivers"
    cluster_folder.mkdir()
    drivers_folder.mkdir()
    program = (DRIVER, archive_of_classes(drivers_folder))
    spares = SpareDrivers(program, drivers_folder, SPARES)
    try:
        with ClusterProcesses(
            cluster_folder, None, bookies=BOOKIES, brokers=BROKERS, disk_bytes=0, settings=SETTINGS
        ) as cluster:
            wait_until(spares.completed, "the first drivers start", START_SECONDS)
            for each in range(seed, seed + runs):
                folder = tmp_path / f"run-{each}"
                folder.mkdir()
                run = ChaosRun(cluster, spares, folder, each)
                run.run()
                report.add(run, folder)
                if not run.findings:
                    shutil.rmtree(folder)
    finally:
        spares.close()
    report.show()
    failed = [*report.failed, *spares.ended]
    say("\n".join(["FOUND:", *failed]) if failed else "no row was lost, doubled or out of order: passed")
    assert not failed, f"{len(failed)} findings, the first: {failed[0]}"
