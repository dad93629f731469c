"""Bookies and the metadata service load no module of the broker: neither when they are imported nor when they serve."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses


def broker_modules(import_times: str) -> list[str]:
    """The modules of the broker in the output of `-X importtime`."""
    return re.findall(r"^import time:.*\| +(gnomon\.broker\S*)$", import_times, re.MULTILINE)


def imported_by(module: str) -> list[str]:
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    return broker_modules(subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr)


@pytest.mark.parametrize("command", ["bookie", "metadata"])
def test_importing_the_command_loads_no_module_of_the_broker(command: str) -> None:
    assert imported_by(f"gnomon.cli.{command}") == []


def test_importing_the_command_of_a_broker_loads_modules_of_the_broker() -> None:
    assert "gnomon.broker.broker" in imported_by("gnomon.cli.broker")


def test_a_serving_bookie_and_metadata_service_have_loaded_no_module_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with LedgerProcesses(tmp_path / "c", bookies=1) as cluster:
        for daemon in cluster.daemons.values():
            for path in ("/readyz?verbose", "/metrics"):
                with urllib.request.urlopen(f"http://{daemon.ready['admin']}{path}") as response:
                    assert response.status == 200
        for name, daemon in reversed(cluster.daemons.items()):
            assert daemon.stop() == 0
            log = (cluster.directory / f"{name}.log").read_text()
            assert "gnomon.runtime.health" in log
            assert broker_modules(log) == []
