from __future__ import annotations

import fcntl
import json
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from click.testing import CliRunner, Result

from gnomon.cli.main import main
from gnomon.log.chains import PARTITIONS
from gnomon.log.subscription_keys import SUBSCRIPTIONS
from gnomon.testing import KafkaBroker

Ledger = Callable[..., Result]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ledger(tmp_path: Path, invoke: Callable[..., Result]) -> Ledger:
    """Runs `gnomon ledger` on one data directory."""

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        return invoke(["ledger", *map(str, arguments), "--data-dir", str(tmp_path / "data")], stdin)

    return run


def test_a_data_directory_refuses_an_ensemble_of_several_bookies(ledger: Ledger, tmp_path: Path) -> None:
    done = ledger("create", "wide", "--ensemble-size", 3)
    assert (done.exit_code, "a data directory has one bookie" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "data").exists()


def test_a_ledger_is_created_appended_to_read_and_shown(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger("create", "a/b", "--property", "owner=me").exit_code == 0
    assert "its last is 2" in ledger("append", "a/b", stdin=b"one\ntwo\n\n").stderr
    whole = tmp_path / "whole"
    whole.write_bytes(b"\x00\xff\n")
    assert "its last is 3" in ledger("append", "a/b", "--file", whole).stderr

    assert ledger("read", "a/b", "--to", 2).stdout_bytes == b"one\ntwo\n\n"
    assert ledger("read", "a/b", "--from", 1, "--to", 1, "--format", "hex").stdout_bytes == b"74776f\n"
    assert ledger("read", "a/b", "--from", 3, "--format", "raw").stdout_bytes == b"\x00\xff\n"

    shown = json.loads(ledger("show", "a/b", "--output", "json").stdout)
    assert (shown["start_entry"], shown["last_entry"], shown["bytes"]) == (0, 3, 9)
    assert (shown["state"], shown["session"], shown["properties"]) == ("open", 3, {"owner": "me"})
    assert [(at["first_entry"], at["session"]) for at in shown["fragments"]] == [(0, 2), (3, 3)]
    (row,) = json.loads(ledger("list", "a/", "--output", "json").stdout)
    assert (row["ledger"], row["last_entry"], row["bytes"]) == ("a/b", 3, 9)
    assert json.loads(ledger("list", "b/", "--output", "json").stdout) == []


def test_an_interrupted_append_ends_with_1_and_the_last_confirmed_entry(ledger: Ledger, tmp_path: Path) -> None:
    ledger("create", "x")
    command = [sys.executable, "-m", "gnomon.cli.main", "ledger", "append", "x", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as append:
        assert append.stdin is not None
        assert append.stderr is not None
        fcntl.fcntl(append.stdin, fcntl.F_SETPIPE_SZ, 1)  # writable again when everything was read
        read = select.poll()
        read.register(append.stdin, select.POLLOUT)
        for line in ("one\n", "two\n"):
            append.stdin.write(line)
            append.stdin.flush()
            assert read.poll(20_000)
        assert f"is in use by process {append.pid}" in ledger("list").stderr  # and the append waits for input
        append.send_signal(signal.SIGINT)
        said = append.stderr.read()
        assert append.wait(20) == 1, said
    assert re.fullmatch(r"the last entry of ledger 'x' known to be confirmed is (-1|0|1)\nAborted!\n", said), said


def test_a_password_may_be_any_bytes(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_bytes(b"\xff\n")
    assert ledger("create", "x", "--password-file", tmp_path / "password").exit_code == 0
    monkeypatch.setenv("GNOMON_LEDGER_PASSWORD", "\udcff")  # the byte as Python decodes it
    assert ledger("append", "x", stdin=b"1\n").exit_code == 0


def test_reading_after_the_end_reports_the_end(ledger: Ledger) -> None:
    ledger("create", "x")
    empty = ledger("read", "x")
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "ledger 'x' has no entries\n")
    ledger("append", "x", stdin=b"1\n2\n")
    behind = ledger("read", "x", "--from", 2)
    assert (behind.exit_code, behind.stdout) == (0, "")
    assert behind.stderr == "ledger 'x' has entries 0 to 1: there is nothing to read\n"
    unconfirmed = ledger("read", "x", "--from", 1, "--to", 9)
    assert (unconfirmed.exit_code, unconfirmed.stderr.count("\n")) == (5, 1)
    assert "`gnomon ledger tail` waits for more" in unconfirmed.stderr
    assert ledger("read", "x", "--from", 3, "--to", 2).exit_code == 2


def test_reading_and_listing_change_nothing(ledger: Ledger) -> None:
    ledger("create", "x")
    ledger("append", "x", stdin=b"1\n")
    before = json.loads(ledger("show", "x", "--output", "json").stdout)
    ledger("read", "x")
    ledger("list")
    assert json.loads(ledger("show", "x", "--output", "json").stdout) == before


def test_shrink_deletes_entries(ledger: Ledger) -> None:
    ledger("create", "x")
    ledger("append", "x", stdin=b"0\n1\n2\n")
    assert ledger("shrink", "x", 2, "--force").exit_code == 0
    assert ledger("read", "x").stdout_bytes == b"2\n"
    gone = ledger("read", "x", "--from", 0)
    assert (gone.exit_code, gone.stdout, gone.stderr.count("\n")) == (5, "", 1)
    assert ledger("shrink", "x", 9).exit_code == 5


def test_a_ledger_keeps_its_length_after_a_shrink_of_all_entries(ledger: Ledger) -> None:
    def length() -> int:
        return json.loads(ledger("show", "x", "--output", "json").stdout)["bytes"]

    ledger("create", "x")
    ledger("append", "x", stdin=b"one\ntwo\n")
    assert length() == 6
    assert ledger("shrink", "x", 2, "--force").exit_code == 0
    assert length() == 6
    ledger("append", "x", stdin=b"three\n")
    assert length() == 11


def test_a_missing_directory_or_ledger_and_an_existing_ledger_end_with_5(ledger: Ledger) -> None:
    nowhere = ledger("list")
    assert nowhere.exit_code == 5
    assert "is no data directory" in nowhere.stderr
    ledger("create", "x")
    assert ledger("create", "x").exit_code == 5
    for missing in (("show", "y"), ("read", "y"), ("append", "y"), ("shrink", "y", 1)):
        done = ledger(*missing)
        assert (done.exit_code, done.stderr.count("\n")) == (5, 1), done.output


@pytest.mark.parametrize("prefix", [PARTITIONS, SUBSCRIPTIONS])
def test_the_ledgers_of_brokers_cannot_be_changed(ledger: Ledger, prefix: str) -> None:
    for change in (("create",), ("append",), ("shrink",)):
        end = (1,) if change == ("shrink",) else ()
        done = ledger(*change, f"{prefix}a/0/0", *end)
        assert done.exit_code == 5
        assert "belongs to a Kafka partition" in done.stderr


def test_the_directory_of_a_running_broker_is_in_use(inside: Run) -> None:
    with KafkaBroker() as broker:
        done = inside("ledger", "list", "--data-dir", broker.data_dir)
        assert (done.returncode, done.stdout) == (5, "")
        assert f"is in use by process {broker.pid}" in done.stderr
        assert done.stderr.count("\n") == 1
        inside("produce", "flights", stdin="x\n", GNOMON_BOOTSTRAP_SERVER=broker.bootstrap_servers)
        broker.stop()
        listed = json.loads(
            inside("ledger", "list", "topics/", "--output", "json", "--data-dir", broker.data_dir).stdout
        )
        assert [row["last_entry"] for row in listed] == [0]


def test_doctor_reads_every_entry_and_names_a_damaged_one(ledger: Ledger, tmp_path: Path) -> None:
    ledger("create", "x")
    ledger("append", "x", stdin=b"first\nsecond\nthird\n")
    data_dir = tmp_path / "data"
    sound = CliRunner().invoke(main, ["doctor", "--deep", "--data-dir", str(data_dir), "--output", "json"])
    assert {row["check"]: row["status"] for row in json.loads(sound.stdout)}["ledgers"] == "ok"
    with lmdb.open(str(data_dir / "bookie"), max_dbs=4) as environment:
        entries = environment.open_db(b"entries")
        with environment.begin(write=True) as transaction, transaction.cursor(entries) as cursor:
            assert cursor.last()
            assert cursor.prev()
            cursor.put(cursor.key(), cursor.value()[:-1] + b"?")
    done = CliRunner().invoke(main, ["doctor", "--deep", "--data-dir", str(data_dir), "--output", "json"])
    assert done.exit_code == 1
    (damaged,) = [row for row in json.loads(done.stdout) if row["status"] == "fail"]
    assert "ledger x: 1 entries cannot be read" in damaged["found"]
    read = ledger("read", "x", "--from", 1, "--to", 1)
    assert (read.exit_code, read.stdout) == (1, "")
