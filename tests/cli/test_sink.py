"""`gnomon sink`: the writers of a cluster on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
WRITER = "__gnomon_sink_nightly"


@pytest.fixture(scope="module")
def writer(gnomon: Run, broker: object) -> str:
    """A writer without a decision: its topic is there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})  # type: ignore[attr-defined]
    admin.create_topics([NewTopic(WRITER, 3)])[WRITER].result()
    return "nightly"


def test_writers_are_listed_and_shown(ask: Run, writer: str) -> None:
    done = ask("sink", "list", "--output", "json")
    nothing = dict.fromkeys(("decision", "query", "batch", "decided"))
    assert json.loads(done.stdout) == [{"writer": writer, **nothing, "applied": True}], done.stderr
    shown = json.loads(ask("sink", "show", writer, "--output", "json").stdout)
    assert (shown["applied"], shown["rows"]) == (True, [])


def test_a_writer_without_a_decision_has_nothing_to_finish_or_forget(ask: Run, writer: str) -> None:
    done = ask("sink", "finish", writer)
    assert (done.returncode, done.stderr.strip()) == (0, "every row that writer 'nightly' has decided is written")
    assert json.loads(ask("sink", "forget", writer, "--output", "json").stdout) == []


@pytest.mark.parametrize("command", ["show", "finish", "forget"])
def test_an_unknown_writer_is_named(ask: Run, writer: str, command: str) -> None:
    done = ask("sink", command, "daily")
    assert done.returncode == 5
    assert done.stderr.strip() == "Error: there is no writer 'daily': `gnomon sink list` shows all writers"


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_missing_package_is_named_in_one_line(package: str) -> None:
    program = f'import sys; sys.modules["{package}"] = None; from gnomon.cli.main import main; main()'
    command = [sys.executable, "-c", program, "sink", "list", "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"Error: gnomon sink needs the package {package}, which is not installed: pip install 'gnomon[spark]'\n"
    )
