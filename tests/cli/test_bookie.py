from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from etcd_needed import etcd_or_skip

from gnomon.bookie.ledgers.ledgers import connect_ledgers
from gnomon.cli import cluster_metadata
from gnomon.cli.main import main
from gnomon.metadata.connect import connect_metadata
from gnomon.testing.daemon import Daemon, DaemonNotStarted
from gnomon.testing.etcd_server import EtcdServer
from gnomon.testing.storms.processes.ledger_processes import BOOKIE_OPTIONS, LedgerProcesses, wait_until

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LedgerProcesses]:
    with LedgerProcesses(tmp_path / "c") as cluster:
        yield cluster


def bookies(inside: Run, cluster: LedgerProcesses, *options: str) -> dict[str, dict[str, Any]]:
    done = inside("bookie", "list", "--metadata", cluster.metadata, "--output", "json", *options)
    assert done.returncode == 0, done.stderr
    return {row["bookie"]: row for row in json.loads(done.stdout)}


def page(daemon: Daemon, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{daemon.ready['admin']}{path}") as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_daemons_print_one_ready_line_serve_health_checks_and_end_with_0(tmp_path: Path, inside: Run) -> None:
    with LedgerProcesses(tmp_path / "c", bookies=1) as cluster:
        metadata, bookie = cluster.daemons["metadata"], cluster.daemons["bookie-1"]
        assert re.fullmatch(r"127\.0\.0\.1:\d+", metadata.ready["metadata"])
        assert metadata.ready["data"] == str(cluster.directory / "metadata")
        assert (bookie.ready["name"], bookie.ready["data"]) == ("bookie-1", str(cluster.directory / "bookie-1"))
        for daemon in (metadata, bookie):
            assert page(daemon, "/livez") == (200, "ok\n")
        assert page(metadata, "/readyz?verbose") == (200, "[+]metadata ok\nready\n")
        assert page(bookie, "/readyz?verbose") == (
            200,
            "[+]bookie ok\n[+]copies ok\n[+]pages ok\n[+]registration ok\nready\n",
        )
        assert "gnomon_metadata_file_bytes" in page(metadata, "/metrics")[1]
        metrics = page(bookie, "/metrics")[1]
        assert "gnomon_bookie_read_only 0.0" in metrics
        assert "gnomon_auditor_elected" in metrics
        assert "kafka" not in metrics.lower()
        (row,) = bookies(inside, cluster).values()
        assert (row["address"], row["state"]) == (bookie.ready["bookie"], "alive")
        assert bookie.stop() == 0
        assert bookies(inside, cluster)["bookie-1"]["state"] == "away"
        assert metadata.stop() == 0


def test_the_shell_completes_bookies_of_the_cluster(
    tmp_path: Path, inside: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(*words: str) -> list[str]:
        shell = ShellComplete(main, {}, "gnomon", "_GNOMON_COMPLETE")
        found = shell.get_completions(["bookie", "decommission", *words[:-1]], words[-1])
        return [item.value for item in found]

    with LedgerProcesses(tmp_path / "c", bookies=2) as cluster:
        at = ("--metadata", cluster.metadata)
        assert completed(*at, "") == ["bookie-1", "bookie-2"]
        assert completed(*at, "bookie-2") == ["bookie-2"]
        cluster.daemons["bookie-1"].stop()
        assert completed(*at, "") == ["bookie-1", "bookie-2"], "a lost bookie can be decommissioned"
        inside("profile", "create", "here", "--metadata", cluster.metadata)
        assert completed("--profile", "here", "b") == ["bookie-1", "bookie-2"]
        assert completed("--profile", "elsewhere", "b") == []
        assert completed("b") == []
        monkeypatch.setenv("GNOMON_CLUSTER__METADATA", cluster.metadata)
        assert completed("b") == ["bookie-1", "bookie-2"]
    assert completed("b") == [], "the metadata does not answer"


def test_a_bookie_that_lost_the_metadata_is_not_ready(tmp_path: Path) -> None:
    with LedgerProcesses(tmp_path / "c", bookies=1) as cluster:
        cluster.daemons["metadata"].pause()
        bookie = cluster.daemons["bookie-1"]
        wait_until(lambda: page(bookie, "/readyz")[0] == 503, "the lease runs out")
        assert "registration: its lease is not kept" in page(bookie, "/readyz")[1]
        cluster.daemons["metadata"].resume()
        wait_until(lambda: page(bookie, "/readyz")[0] == 200, "it is registered again")


def test_a_daemon_that_cannot_start_prints_the_reason_in_one_line(tmp_path: Path, inside: Run) -> None:
    def refused(code: int, text: str, *command: object) -> None:
        done = inside(*command, *ports, GNOMON_LOG__LEVEL="error")  # a busy machine has long turns
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
        assert text in done.stderr

    ports = ("--port", 0, "--admin-port", 0)
    with LedgerProcesses(tmp_path / "c", bookies=1) as cluster:
        at, where = ("--metadata", cluster.metadata), cluster.directory
        refused(5, "in use by process", "metadata", "--data-dir", where / "metadata")
        refused(5, "in use by process", "bookie", "--name", "x", *at, "--data-dir", where / "bookie-1")
        cluster.daemons["bookie-1"].stop()
        whose = "is one of `gnomon bookie`, not of `gnomon {}`: give each process a --data-dir of its own"
        refused(1, whose.format("metadata"), "metadata", "--data-dir", where / "bookie-1")
        there = inside("ledger", "list", "--data-dir", where / "bookie-1")
        assert (there.returncode, whose.format("standalone") in there.stderr) == (1, True), there.stderr
        (where / "bookie-1" / "FORMAT").write_text("1000 bookie\n")
        refused(1, "has format '1000'", "bookie", "--name", "bookie-1", *at, "--data-dir", where / "bookie-1")
        refused(2, "give --name", "bookie", *at, "--data-dir", where / "new")
        refused(2, "'a/b' is refused", "bookie", "--name", "a/b", *at, "--data-dir", where / "new")
        refused(2, "give --metadata", "bookie", "--name", "x", "--data-dir", where / "new")
        refused(2, "HOST:PORT", "bookie", "--name", "x", "--metadata", "nowhere", "--data-dir", where / "new")
        busy = cluster.metadata.rpartition(":")[2]
        ports = ("--port", busy, "--admin-port", 0)
        refused(1, busy, "bookie", "--name", "x", *at, "--data-dir", where / "new")
        refused(1, busy, "metadata", "--data-dir", where / "newer")
        ports = ("--port", 0, "--admin-port", busy)
        refused(1, busy, "metadata", "--data-dir", where / "newest")


def test_a_bookie_refuses_a_foreign_disk_and_a_new_one_until_it_is_decommissioned(
    cluster: LedgerProcesses, inside: Run
) -> None:
    cluster.daemons["bookie-1"].stop()
    where = ("--metadata", cluster.metadata, "--port", 0, "--admin-port", 0, "--data-dir")
    foreign = inside("bookie", "--name", "bookie-2", *where, cluster.directory / "bookie-1")
    assert (foreign.returncode, foreign.stderr.count("\n")) == (1, 1)
    assert "not the disk of bookie 'bookie-2'" in foreign.stderr
    shutil.rmtree(cluster.directory / "bookie-1")
    with pytest.raises(DaemonNotStarted, match=r"gnomon bookie decommission bookie-1"):
        cluster.start_bookie("bookie-1")
    done = inside("bookie", "decommission", "bookie-1", "--metadata", cluster.metadata)
    assert done.returncode == 0, done.stderr
    cluster.start_bookie("bookie-1")
    assert bookies(inside, cluster)["bookie-1"]["state"] == "alive"


def test_a_decommissioned_bookie_is_emptied_and_ends(cluster: LedgerProcesses, inside: Run) -> None:
    at = ("--metadata", cluster.metadata)
    cluster.start_bookie("bookie-4", "--domain", "rack-4")
    assert bookies(inside, cluster)["bookie-4"]["domain"] == "rack-4"
    for name in ("a", "b"):
        assert inside("ledger", "create", name, *at).returncode == 0
        assert inside("ledger", "append", name, *at, stdin="1\n2\n").returncode == 0
    usage = bookies(inside, cluster, "--usage")
    assert sum(row["ledgers"] for row in usage.values()) == 6
    assert all(row["bytes"] > 0 for row in usage.values())
    leaving = max(usage, key=lambda name: usage[name]["ledgers"])

    done = inside("bookie", "decommission", leaving, *at)
    assert done.returncode == 0, done.stderr
    assert f"0 ledgers still name bookie '{leaving}'" in done.stderr or "is no member any more" in done.stderr
    assert cluster.daemons[leaving].wait() == 0
    assert "bookie_dismissed" in cluster.daemons[leaving].log.read_text()
    left = bookies(inside, cluster, "--usage")
    assert leaving not in left
    assert sum(row["ledgers"] for row in left.values()) == 6
    for name in ("a", "b"):
        assert inside("ledger", "read", name, *at).stdout == "1\n2\n"


def test_a_bookie_that_is_needed_or_unknown_is_not_decommissioned(cluster: LedgerProcesses, inside: Run) -> None:
    at = ("--metadata", cluster.metadata)
    unknown = inside("bookie", "decommission", "bookie-9", *at)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (5, 1)
    assert "there is no bookie 'bookie-9'" in unknown.stderr
    assert inside("ledger", "create", "wide", *at).returncode == 0
    needed = inside("bookie", "decommission", "bookie-1", *at)
    assert (needed.returncode, needed.stderr.count("\n")) == (5, 1)
    assert "too few bookies would be left: ledger 'wide' lies on" in needed.stderr
    assert bookies(inside, cluster)["bookie-1"]["state"] == "alive"
    assert inside("ledger", "delete", "wide", *at).returncode == 0
    started = inside("bookie", "decommission", "bookie-1", "--no-wait", *at)
    assert (started.returncode, started.stderr) == (0, "bookie 'bookie-1' is being emptied\n")
    assert cluster.daemons["bookie-1"].wait() == 0


def test_options_of_a_bookie_before_a_command_are_refused(inside: Run) -> None:
    done = inside("bookie", "--metadata", "127.0.0.1:1", "list")
    assert done.returncode == 2
    assert "after its name" in done.stderr


def test_metadata_that_does_not_answer_ends_with_3(inside: Run) -> None:
    done = inside("bookie", "list", "--metadata", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize(
    "command", ["bookie list", "bookie --name x --port 0 --admin-port 0", "broker --id 1 --admin-port 0"]
)
def test_a_command_that_waits_for_the_metadata_prints_its_address_and_the_time(
    inside: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr(cluster_metadata, "TOLD_SECONDS", 0.05)
    monkeypatch.setattr("gnomon.cli.bookie.connect_metadata", partial(connect_metadata, retry_seconds=0.2))
    monkeypatch.setattr("gnomon.cli.broker.connect_ledgers", partial(connect_ledgers, retry_seconds=0.2))
    done = inside(*command.split(), "--metadata", "127.0.0.1:1", GNOMON_DATA_DIR=str(tmp_path / "x"))
    told, end = done.stderr.splitlines()
    assert "no answer yet from the metadata at 127.0.0.1:1: waiting, about " in told
    assert (done.returncode, end.startswith("Error: metadata at 127.0.0.1:1")) == (3, True)


def test_a_cluster_keeps_its_metadata_in_etcd(tmp_path: Path, inside: Run) -> None:
    etcd_or_skip()
    with EtcdServer(tmp_path / "etcd") as etcd:
        at = ("--metadata", f"etcd://{etcd.endpoint}")
        command = ("bookie", "--name", "one", *at, "--data-dir", tmp_path / "one", "--port", 0, "--admin-port", 0)
        daemon = Daemon([*command, *BOOKIE_OPTIONS], tmp_path / "one.log").wait_ready()
        try:
            assert inside("ledger", "create", "x", "--ensemble-size", 1, *at).returncode == 0
            assert inside("ledger", "append", "x", *at, stdin="1\n").returncode == 0
            assert inside("ledger", "read", "x", *at).stdout == "1\n"
            assert daemon.stop() == 0
        finally:
            daemon.kill()


def test_metadata_in_etcd_needs_the_etcd_extra(gnomon: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['httpx2'] = None\n")
    done = gnomon("bookie", "list", "--metadata", "etcd://127.0.0.1:1", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'gnomon[etcd]'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tail_follows_a_ledger_until_it_is_stopped(
    cluster: LedgerProcesses, inside: Run, number: signal.Signals
) -> None:
    at = ("--metadata", cluster.metadata)
    assert inside("ledger", "create", "x", *at).returncode == 0
    command = [sys.executable, "-m", "gnomon.cli.main", "ledger", "tail", "x", "--from", "0", *at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        for text in ("one\n", "two\n"):
            assert inside("ledger", "append", "x", *at, stdin=text).returncode == 0
            assert tail.stdout.readline() == text
        tail.send_signal(number)
        assert tail.communicate(timeout=20) == ("", "")
        assert tail.returncode == 0


def test_tail_notices_a_closed_output_while_no_entry_arrives(cluster: LedgerProcesses, inside: Run) -> None:
    at = ("--metadata", cluster.metadata)
    assert inside("ledger", "create", "unread", *at).returncode == 0
    assert inside("ledger", "append", "unread", *at, stdin="one\n").returncode == 0
    command = [sys.executable, "-m", "gnomon.cli.main", "ledger", "tail", "unread", "--from", "0", *at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == "one\n"
        tail.stdout.close()
        try:
            assert (tail.wait(5), tail.stderr.read()) == (0, "")
        finally:
            tail.kill()
