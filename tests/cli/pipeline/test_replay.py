"""The options of `gnomon pipeline replay`; tests/with_spark/test_replays.py has its effects."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.spark.columns import Range
from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.spark.pipelines.replays.range_replay import ReplayReport

Run = Callable[..., "subprocess.CompletedProcess[str]"]
OFFSETS = '{"orders": {"0": 17}}'


@pytest.fixture
def file(tmp_path: Path, inside: Run) -> Path:
    path = tmp_path / "pipeline.toml"
    assert inside("pipeline", "init", "delta", "--file", path).returncode == 0
    return path


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "Give one of --letters, --into and --replace"),
        (["--letters", "--replace"], "Give one of --letters, --into and --replace"),
        (["--into", "a", "--replace"], "Give one of --letters, --into and --replace"),
        (["--letters", "--to-offsets", "latest"], "no --from-… or --to-…"),
        (["--replace", "--from-offsets", "earliest", "--from-time", "2026-01-01T00:00:00Z"], "offsets or as a time"),
        (["--replace", "--to-time", "2026-01-01"], "does not match the formats"),
    ],
)
def test_options_that_do_not_go_together_are_refused(inside: Run, file: Path, options: list[str], text: str) -> None:
    done = inside("pipeline", "replay", file, *options)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_pipeline_of_files_is_told_of_reset(inside: Run, tmp_path: Path) -> None:
    path = tmp_path / "files.toml"
    assert inside("pipeline", "init", "topic", "--file", path).returncode == 0
    done = inside("pipeline", "replay", path, "--letters")
    assert done.returncode == 2
    assert "gnomon pipeline reset" in done.stderr


@pytest.mark.parametrize(
    ("options", "bounds", "into"),
    [
        (["--replace"], {}, None),
        (["--replace", "--from-offsets", OFFSETS], {"startingOffsets": OFFSETS}, None),
        (
            ["--into", "other", "--from-time", "2026-01-01T00:00:00Z", "--to-time", "2026-01-01T00:00:01.5+01:00"],
            {
                "startingTimestamp": "1767225600000",
                "startingOffsetsByTimestampStrategy": "latest",
                "endingTimestamp": "1767222001500",
            },
            "other",
        ),
        (["--into", "other", "--to-offsets", "latest"], {"endingOffsets": "latest"}, "other"),
    ],
)
def test_bounds_become_options_of_a_batch_read(
    inside: Run,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    bounds: dict[str, str],
    into: str | None,
) -> None:
    asked: list[tuple[dict[str, str], str | None]] = []

    def replay(_self: Pipeline, bounds: dict[str, str], into: str | None) -> ReplayReport:
        asked.append((bounds, into))
        return ReplayReport([Range("orders", 0, 17, 20)], 3, 100, 0)

    monkeypatch.setattr(Pipeline, "replay", replay)
    done = inside("pipeline", "replay", file, *options, "--output", "json")
    assert done.returncode == 0
    assert asked == [(bounds, into)]
    assert '"rows": 3' in done.stdout
