"""The errors of pipelines are one line each, and an exit code, for every command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.client.kafka.errors import RequestRefused
from gnomon.runtime.world import Unreachable
from gnomon.spark.columns import UnreadableBatch
from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.schema_registry import UnusableRegistry
from gnomon.spark.offsets import BadOption
from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.spark.pipelines.replays.range_replay import ReplayRefused
from gnomon.spark.pipelines.run_failed import RunFailed
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.pipelines.tasks.letters import RecordsRefused
from gnomon.spark.planning import DataLost
from gnomon.spark.row_count import WrongRowCount
from gnomon.spark.tables.table import BadTable, TableBusy
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.wire.kafka.errors import ErrorCode

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((kind("the reason"), 2) for kind in (BadPipeline, BadOption, BadFormat)),
        (PipelineFenced("the reason"), 5),
        (Unreachable("the reason"), 3),
        (RequestRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the reason"), 1),
        *(
            (kind("the reason"), 1)
            for kind in (
                RecordsRefused,
                ReplayRefused,
                RunFailed,
                BadTable,
                TableBusy,
                DataLost,
                DeliveryFailed,
                UnreadableBatch,
                UnusableRegistry,
                WrongRowCount,
            )
        ),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_an_error_is_one_line(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    path = tmp_path / "pipeline.toml"
    assert inside("pipeline", "init", "delta", "--file", path).returncode == 0

    def fails(_: Pipeline) -> None:
        raise error

    monkeypatch.setattr(Pipeline, "status", fails)
    done = inside("pipeline", "status", path)
    assert done.returncode == code
    assert "the reason" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_missing_package_is_named_in_one_line(inside: Run, tmp_path: Path, package: str) -> None:
    path = tmp_path / "pipeline.toml"
    assert inside("pipeline", "init", "delta", "--file", path).returncode == 0
    program = f'import sys; sys.modules["{package}"] = None; from gnomon.cli.main import main; main()'
    done = subprocess.run(
        [sys.executable, "-c", program, "pipeline", "status", str(path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: pipelines need the package {package}, which is not installed: pip install 'gnomon[lake]'\n"
    )
