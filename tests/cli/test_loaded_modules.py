"""Bookies and the metadata service load no module of the broker, and an idle node loads only its own needs.

The commands for Spark load its packages when they run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import gnomon.cli.pipeline
from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses

ON_USE = {"asyncio", "rich", "hypercorn", "starlette", "prometheus_client", "confluent_kafka", "yaml"}
"""Packages for pages, commands and metrics; each takes some MB."""


def loaded_modules(import_times: str) -> list[str]:
    """The modules in the output of `-X importtime`."""
    return re.findall(r"^import time:.*\| +(\S+)$", import_times, re.MULTILINE)


def broker_modules(import_times: str) -> list[str]:
    """The modules of the broker in the output of `-X importtime`."""
    return [name for name in loaded_modules(import_times) if name.startswith("gnomon.broker")]


def imported_by(module: str) -> list[str]:
    return broker_modules(import_times(f"import {module}"))


def import_times(program: str) -> str:
    command = [sys.executable, "-X", "importtime", "-c", program]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr


@pytest.mark.parametrize("command", ["bookie", "metadata"])
def test_importing_the_command_loads_no_module_of_the_broker(command: str) -> None:
    assert imported_by(f"gnomon.cli.{command}") == []


def test_importing_the_command_of_a_broker_loads_modules_of_the_broker() -> None:
    assert "gnomon.broker.broker" in imported_by("gnomon.cli.broker")


def test_importing_the_commands_for_spark_loads_neither_spark_nor_its_packages() -> None:
    folder = Path(gnomon.cli.pipeline.__file__).parent
    modules = ["gnomon.cli.sink", *(f"gnomon.cli.pipeline.{path.stem}" for path in folder.glob("[a-z]*.py"))]
    assert "gnomon.cli.pipeline.run" in modules
    loaded = loaded_modules(import_times(f"import {', '.join(modules)}"))
    assert set(modules) <= set(loaded)
    of_spark = ("gnomon.spark", "pyspark", "pyarrow", "numpy")
    assert [name for name in loaded if name.startswith(of_spark)] == []


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


@pytest.mark.parametrize("format", ["json", "console"])
def test_an_idle_standalone_node_has_loaded_nothing_that_only_pages_and_commands_need(
    tmp_path: Path, format: str
) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "gnomon.cli.main", "standalone", "--data-dir", str(tmp_path)]
    command += [f"--{port}-port=0" for port in ("kafka", "native", "admin")] + [f"--set=log.format={format}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("ready ")
        node.terminate()
        _, log = node.communicate(timeout=30)
    assert node.returncode == 0
    assert re.search(r"\bstarted\b.*\n(.*\n)*.*\bstopped\b", log)
    packages = {name.split(".")[0] for name in loaded_modules(log)}
    assert {"trio", "lmdb"} <= packages
    assert packages & ON_USE == set()
