"""The extra `lake` in an environment of its own: the wheel and what it requires are enough for a pipeline."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from toolchains import tool

from gnomon.testing import KafkaBroker

ROOT = Path(__file__).parents[2]
FIRST_SECONDS = 300.0
"""PySpark alone has 456 MB."""


def run(command: Sequence[str | Path], folder: Path, **given: str) -> str:
    """Runs a command without the packages of this environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | given
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=FIRST_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.timeout(2 * FIRST_SECONDS)
def test_the_wheel_with_its_extra_is_enough_for_a_pipeline(tmp_path: Path) -> None:
    tool("java", "Spark needs Java 17")
    run([sys.executable, "-m", "build", "-q", "--wheel", "--outdir", tmp_path, ROOT], tmp_path)
    (wheel,) = tmp_path.glob("gnomon-*.whl")
    fresh = tmp_path / "fresh"
    run([sys.executable, "-m", "venv", fresh], tmp_path)
    run([fresh / "bin" / "python", "-m", "pip", "install", "-q", f"{wheel}[lake]"], tmp_path)
    gnomon = fresh / "bin" / "gnomon"
    with KafkaBroker() as broker:
        servers = {"GNOMON_BOOTSTRAP_SERVER": broker.bootstrap_servers}
        run([gnomon, "topic", "create", "orders"], tmp_path, **servers)
        run(["sh", "-c", f"echo '{{\"id\": 1}}' | {gnomon} produce orders"], tmp_path, **servers)
        run([gnomon, "pipeline", "init", "delta"], tmp_path)
        file = tmp_path / "pipeline.toml"
        file.write_text(file.read_text().replace("127.0.0.1:9092", broker.bootstrap_servers))
        run([gnomon, "pipeline", "check", file, "--write-schema"], tmp_path)
        assert "batch 0: 1 rows" in run([gnomon, "pipeline", "run", file], tmp_path)
