from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcesses]:
    with LedgerProcesses(tmp_path_factory.mktemp("cluster") / "c") as cluster:
        yield cluster


@pytest.fixture
def ledger(inside: Run, cluster: LedgerProcesses) -> Run:
    """Runs `gnomon ledger` on the cluster."""

    def run(*arguments: object, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return inside("ledger", *arguments, stdin=stdin, GNOMON_CLUSTER__METADATA=cluster.metadata, **variables)

    return run


def test_the_ledger_commands_work_on_a_cluster(ledger: Run, tmp_path: Path) -> None:
    assert ledger("create", "a/b", "--property", "owner=me").returncode == 0
    assert "its last is 2" in ledger("append", "a/b", stdin="one\ntwo\nthree").stderr
    whole = tmp_path / "whole"
    whole.write_text("four\n")
    assert "its last is 3" in ledger("append", "a/b", "--file", whole).stderr
    assert ledger("read", "a/b").stdout == "one\ntwo\nthree\nfour\n\n"
    assert ledger("tail", "a/b", "--from", 1, "--count", 2).stdout == "two\nthree\n"
    assert ledger("shrink", "a/b", 2, "--force").returncode == 0
    gone = ledger("read", "a/b", "--from", 0)
    assert (gone.returncode, gone.stdout, gone.stderr.count("\n")) == (5, "", 1)

    shown = json.loads(ledger("show", "a/b", "--output", "json").stdout)
    assert (shown["start_entry"], shown["last_entry"], shown["bytes"]) == (2, 3, 16)
    assert shown["quorum"] == {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
    assert shown["properties"] == {"owner": "me"}
    assert all(len(fragment["bookies"]) == 3 for fragment in shown["fragments"])
    (row,) = json.loads(ledger("list", "a/", "--output", "json").stdout)
    assert (row["ledger"], row["last_entry"], row["state"]) == ("a/b", 3, "open")

    end = json.loads(ledger("recover", "a/b", "--output", "json").stdout)
    assert (end["last_entry"], end["session"] > shown["session"]) == (3, True)
    assert "its last entry is 3" in ledger("seal", "a/b").stderr
    assert ledger("append", "a/b", stdin="late\n").returncode == 5
    assert ledger("tail", "a/b", "--from", 2).stdout == "three\nfour\n\n"  # ends: the ledger is sealed
    assert ledger("delete", "a/b").returncode == 0
    assert ledger("show", "a/b").returncode == 5


def test_a_quorum_is_given_or_follows_from_the_ensemble(ledger: Run) -> None:
    def quorum(name: str) -> tuple[int, ...]:
        return tuple(json.loads(ledger("show", name, "--output", "json").stdout)["quorum"].values())

    assert ledger("create", "q2", "--ensemble-size", 2).returncode == 0
    assert quorum("q2") == (2, 2, 2)
    assert ledger("create", "q321", "--write-quorum", 2, "--ack-quorum", 1).returncode == 0
    assert quorum("q321") == (3, 2, 1)
    odd = ledger("create", "odd", "--ensemble-size", 1, "--write-quorum", 2)
    assert odd.returncode == 2
    wide = ledger("create", "wide", "--ensemble-size", 5)
    assert (wide.returncode, wide.stderr.count("\n")) == (3, 1)
    assert "start more of them" in wide.stderr


@pytest.mark.parametrize("digest", ["crc32c", "mac"])
def test_a_password_comes_from_a_file_or_the_environment_and_a_wrong_one_is_denied(
    ledger: Run, tmp_path: Path, digest: str
) -> None:
    file = tmp_path / "password"
    file.write_text("right\n")
    right, name = ("--password-file", file), f"secret-{digest}"
    assert ledger("create", name, "--digest", digest, *right).returncode == 0
    assert ledger("append", name, *right, stdin="one\n").returncode == 0
    assert ledger("read", name, GNOMON_LEDGER_PASSWORD="right").stdout == "one\n"
    before = json.loads(ledger("show", name, "--output", "json").stdout)
    assert (before["digest"], before["password"], before["bytes"]) == (digest, True, 3)
    for command in ("read", "tail", "append", "recover", "seal", "delete"):
        denied = ledger(command, name, GNOMON_LEDGER_PASSWORD="wrong")
        assert (denied.returncode, denied.stdout, denied.stderr.count("\n")) == (4, "", 1), denied.stderr
        assert "wrong password" in denied.stderr
    assert ledger("shrink", name, 1).returncode == 4
    assert json.loads(ledger("show", name, "--output", "json").stdout) == before
    assert name in ledger("list").stdout


def test_a_mac_needs_a_password(ledger: Run) -> None:
    done = ledger("create", "bare", "--digest", "mac")
    assert done.returncode == 2
    assert "--password-file" in done.stderr


def test_missing_existing_and_internal_ledgers_and_unfit_options_are_refused(ledger: Run, tmp_path: Path) -> None:
    assert ledger("create", "there").returncode == 0
    assert ledger("create", "there").returncode == 5
    for command in ("show", "read", "append", "recover", "seal", "delete", "tail"):
        done = ledger(command, "nowhere")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1), command
    for command in ("create", "append", "recover", "seal", "delete"):
        assert "belongs to a Kafka partition" in ledger(command, "topics/a/0/0").stderr
    both = ledger("list", "--metadata", "127.0.0.1:1", "--data-dir", tmp_path)
    assert both.returncode == 2
    assert ledger("tail", "there", "--data-dir", tmp_path).returncode == 2
    assert ledger("list", "--metadata", "127.0.0.1:1").returncode == 3


def test_a_writer_that_lost_its_ledger_reports_the_last_confirmed_entry(ledger: Run, cluster: LedgerProcesses) -> None:
    assert ledger("create", "contested").returncode == 0
    command = [sys.executable, "-m", "gnomon.cli.main", "ledger", "append", "contested", "--metadata", cluster.metadata]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as writer:
        assert writer.stdin is not None
        writer.stdin.write("one\n")
        writer.stdin.flush()
        assert ledger("tail", "contested", "--from", 0, "--count", 1).stdout == "one\n"
        assert ledger("append", "contested", stdin="two\n").returncode == 0
        _, stderr = writer.communicate("late\n", timeout=20)
        assert writer.returncode == 5
    assert "known to be confirmed is 0" in stderr
    assert ledger("read", "contested").stdout == "one\ntwo\n"
