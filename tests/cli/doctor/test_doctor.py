from __future__ import annotations

import errno
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.cli.doctor import host_checks
from gnomon.cli.doctor.check import CheckStatus
from gnomon.runtime.disk.data_directory import FORMAT
from gnomon.runtime.settings.loaded_settings import load_settings
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def statuses(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {row["check"]: row["status"] for row in json.loads(done.stdout)}


def test_a_machine_with_a_running_broker_passes(ask: Run, broker: KafkaBroker) -> None:
    done = ask("doctor", "--data-dir", broker.data_dir, "--output", "json")
    assert done.returncode == 0, done.stdout
    found = statuses(done)
    assert (found["python"], found["packages"], found["format"], found["broker"]) == ("ok", "ok", "ok", "ok")


def test_a_broker_that_was_asked_for_has_to_answer(inside: Run, tmp_path: Path) -> None:
    done = inside("doctor", "--data-dir", tmp_path / "new", "--bootstrap-server", "127.0.0.1:1", "--output", "json")
    assert (done.returncode, statuses(done)["broker"]) == (1, "fail")
    assert not (tmp_path / "new").exists()


def stored(directory: Path) -> dict[str, bytes]:
    """Every file that outlives its process: LMDB's table of readers and our lock do not."""
    passing = ("lock.mdb", "LOCK")
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name not in passing]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_it_changes_nothing_that_is_stored(inside: Run, tmp_path: Path) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    assert inside("ledger", "append", "audit", "--data-dir", tmp_path, stdin="one\n").returncode == 0
    before = stored(tmp_path)
    assert {"FORMAT", "bookie/data.mdb", "metadata/data.mdb"} <= set(before)
    assert inside("doctor", "--data-dir", tmp_path, "--deep").returncode == 0
    assert stored(tmp_path) == before


@pytest.mark.parametrize("folder", ["bookie", "metadata"])
def test_half_a_data_directory_fails_and_is_left_as_it_is(inside: Run, tmp_path: Path, folder: str) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    shutil.rmtree(tmp_path / folder)
    done = inside("doctor", "--data-dir", tmp_path, "--deep", "--output", "json")
    assert (done.returncode, statuses(done)["ledgers"]) == (1, "fail")
    assert f"{tmp_path}/{folder} is missing" in done.stdout
    assert not (tmp_path / folder).exists()


def test_a_store_of_entries_that_was_begun_anew_fails(inside: Run, tmp_path: Path) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "bookie")
    assert inside("ledger", "list", "--data-dir", tmp_path).returncode == 1, "it has begun the store anew, and refused"
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json")
    assert (done.returncode, statuses(done)["ledgers"]) == (1, "fail")


def test_a_newer_format_and_lost_durability_are_told(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("99\n")
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json", GNOMON_BOOKIE__DURABILITY="none")
    found = statuses(done)
    assert (done.returncode, found["format"], found["durability"]) == (1, "fail", "warn")


def test_a_directory_of_one_process_of_a_cluster_is_not_taken_for_half_of_a_whole(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text(f"{FORMAT} bookie\n")
    (tmp_path / "bookie").mkdir()
    (tmp_path / "bookie" / "data.mdb").write_bytes(b"")
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json")
    found = {row["check"]: row["found"] for row in json.loads(done.stdout)}
    assert statuses(done)["ledgers"] == "ok"
    assert found["format"] == f"{FORMAT}, of `gnomon bookie`"


@pytest.mark.parametrize(
    ("hidden", "failed"),
    [("FORMAT", {"format", "ledgers"}), ("bookie", {"bookie store", "ledgers"})],
)
def test_what_may_not_be_read_is_found_and_the_other_checks_go_on(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, failed: set[str]
) -> None:
    (tmp_path / "FORMAT").write_text(f"{FORMAT} standalone\n")

    def denied(method: Callable[..., object]) -> Callable[..., object]:
        def call(path: Path, *arguments: object, **named: object) -> object:
            if hidden in path.parts:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return method(path, *arguments, **named)

        return call

    for name in ("read_bytes", "stat"):
        monkeypatch.setattr(Path, name, denied(getattr(Path, name)))
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json")
    found = {row["check"]: row["found"] for row in json.loads(done.stdout) if row["status"] == "fail"}
    assert (done.returncode, set(found)) == (1, failed)
    assert all(f"{tmp_path}/{hidden}" in text and "Permission denied" in text for text in found.values())


def test_a_host_that_is_no_host_name_is_a_warning(inside: Run, tmp_path: Path) -> None:
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json", GNOMON_BROKER__KAFKA_HOST="a..b")
    assert (done.returncode, statuses(done)["kafka port"]) == (0, "warn")
    assert "is no host name" in done.stdout


def test_too_few_files_are_a_warning_that_says_what_to_set() -> None:
    check = host_checks.open_files(10**9)
    assert check.status is CheckStatus.WARN
    assert f"ulimit -n {10**9 + host_checks.SPARE_FILES}" in check.advice


def test_a_store_that_nears_its_map_is_told(tmp_path: Path) -> None:
    (tmp_path / "bookie").mkdir()
    (tmp_path / "bookie" / "data.mdb").write_bytes(bytes(9 << 20))
    settings = load_settings(None, {}, {"data_dir": str(tmp_path), "bookie.map_bytes": 10 << 20}).settings
    found = {check.name: check for check in host_checks.directory(settings)}
    assert found["bookie store"].status is CheckStatus.WARN
    assert "raise bookie.map_bytes" in found["bookie store"].advice


@pytest.mark.parametrize(
    ("kind", "status"), [("tmpfs", CheckStatus.WARN), ("nfs4", CheckStatus.WARN), ("ext4", CheckStatus.OK)]
)
def test_the_file_system_is_judged_by_its_type(
    kind: str, status: CheckStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_checks, "_file_system_type", lambda _path: kind)
    settings = load_settings(None, {}, {"data_dir": str(tmp_path)}).settings
    found = {check.name: check for check in host_checks.directory(settings)}
    assert found["file system"].status is status
