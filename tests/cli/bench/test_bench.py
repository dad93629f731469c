from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from gnomon.cli.bench import bench
from gnomon.cli.bench.measured_load import MeasuredLoad

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def few_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUND_TRIPS", 20)


def phases(stdout: str) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in json.loads(stdout)["phases"]}


def test_a_load_is_written_and_read_back_and_its_topic_is_deleted(ask: Run) -> None:
    done = ask("bench", "--records", 500, "--record-bytes", 10, "--partitions", 2, "--output", "json")
    assert done.returncode == 0, done.stderr
    found = phases(done.stdout)
    assert {name: row["records"] for name, row in found.items()} == {"produce": 500, "consume": 500, "round-trip": 20}
    for name in ("produce", "round-trip"):
        row = found[name]
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p999_ms"] <= row["max_ms"]
        assert row["max_ms"] <= row["seconds"] * 1000 + 1  # seconds are rounded
    assert found["consume"]["p50_ms"] is None
    assert "the client shares this machine with the broker" in done.stderr
    assert "gnomon-bench" not in ask("topic", "list").stdout


def test_a_load_is_bounded_in_time_and_keeps_its_rate(ask: Run) -> None:
    done = ask("bench", "--records", 100_000_000, "--rate", 200, "--seconds", 0.5, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert 1 <= phases(done.stdout)["produce"]["records"] <= 101
    assert "at up to 200 a second" in done.stderr


def test_an_interrupted_load_deletes_its_topic(ask: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_run: bench.BenchRun) -> None:
        assert "gnomon-bench" in ask("topic", "list").stdout
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.BenchRun, "consume", interrupted)
    done = ask("bench", "--records", 10)
    assert (done.returncode, done.stdout) == (1, "")
    assert "gnomon-bench" not in ask("topic", "list").stdout


def test_records_that_were_not_delivered_are_counted_and_end_with_1(ask: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    produce = bench.BenchRun.produce

    def partly(run: bench.BenchRun, records: int, rate: int | None) -> MeasuredLoad:
        run.undelivered, run.reason = 3, "timed out"
        return produce(run, records, rate)

    monkeypatch.setattr(bench.BenchRun, "produce", partly)
    done = ask("bench", "--records", 10, "--seconds", 1)
    assert done.returncode == 1
    assert done.stderr.endswith("Error: 3 records were not delivered: timed out\n")
    assert "round-trip" in done.stdout
