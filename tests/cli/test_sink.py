"""`gnomon sink`: the writers of a cluster on the command line."""

from __future__ import annotations

import json
import subprocess
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
