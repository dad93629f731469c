from __future__ import annotations

import errno
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from gnomon import OpenMode, connect_ledgers
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum, ledger_key
from gnomon.cli.doctor import cluster_checks, host_checks
from gnomon.cli.doctor.check import CheckStatus
from gnomon.cli.doctor.subscription_checks import idle_check
from gnomon.client.described_subscription import IdleSubscription
from gnomon.metadata.client import Delete
from gnomon.runtime.disk.data_directory import FORMAT
from gnomon.runtime.settings.loaded_settings import load_settings
from gnomon.testing import KafkaBroker
from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def statuses(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {row["check"]: row["status"] for row in json.loads(done.stdout)}


def test_a_machine_with_a_running_broker_passes(ask: Run, broker: KafkaBroker) -> None:
    done = ask("doctor", "--data-dir", broker.data_dir, "--output", "json")
    assert done.returncode == 0, done.stdout
    found = statuses(done)
    assert (found["python"], found["packages"], found["format"], found["broker"]) == ("ok", "ok", "ok", "ok")


def test_a_given_broker_that_does_not_answer_fails(inside: Run, tmp_path: Path) -> None:
    done = inside("doctor", "--data-dir", tmp_path / "new", "--bootstrap-server", "127.0.0.1:1", "--output", "json")
    assert (done.returncode, statuses(done)["broker"]) == (1, "fail")
    assert not (tmp_path / "new").exists()


def stored(directory: Path) -> dict[str, bytes]:
    """The content of every file, except LMDB's reader table and the lock, which only matter to a running process."""
    passing = ("lock.mdb", "LOCK")
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name not in passing]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_doctor_changes_no_stored_file(inside: Run, tmp_path: Path) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    assert inside("ledger", "append", "audit", "--data-dir", tmp_path, stdin="one\n").returncode == 0
    before = stored(tmp_path)
    assert {"FORMAT", "bookie/data.mdb", "metadata/data.mdb"} <= set(before)
    assert inside("doctor", "--data-dir", tmp_path, "--deep").returncode == 0
    assert stored(tmp_path) == before


@pytest.mark.parametrize("folder", ["bookie", "metadata"])
def test_a_data_directory_that_lacks_a_store_fails_and_is_not_changed(inside: Run, tmp_path: Path, folder: str) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    shutil.rmtree(tmp_path / folder)
    done = inside("doctor", "--data-dir", tmp_path, "--deep", "--output", "json")
    assert (done.returncode, statuses(done)["ledgers"]) == (1, "fail")
    assert f"{tmp_path}/{folder} is missing" in done.stdout
    assert not (tmp_path / folder).exists()


def test_an_entry_store_that_was_created_again_fails(inside: Run, tmp_path: Path) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "bookie")
    assert inside("ledger", "list", "--data-dir", tmp_path).returncode == 1, "it has begun the store anew, and refused"
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json")
    assert (done.returncode, statuses(done)["ledgers"]) == (1, "fail")


def test_a_newer_format_fails_and_disabled_durability_is_a_warning(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("99\n")
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json", GNOMON_BOOKIE__DURABILITY="none")
    found = statuses(done)
    assert (done.returncode, found["format"], found["durability"]) == (1, "fail", "warn")


def test_the_data_directory_of_a_bookie_needs_no_metadata_store(inside: Run, tmp_path: Path) -> None:
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
def test_an_unreadable_path_fails_its_checks_and_the_others_continue(
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


def test_an_invalid_host_name_is_a_warning(inside: Run, tmp_path: Path) -> None:
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json", GNOMON_BROKER__KAFKA_HOST="a..b")
    assert (done.returncode, statuses(done)["kafka port"]) == (0, "warn")
    assert "is no host name" in done.stdout


def test_a_low_limit_of_open_files_is_a_warning_with_the_command_that_raises_it() -> None:
    check = host_checks.open_files(10**9)
    assert check.status is CheckStatus.WARN
    assert f"ulimit -n {10**9 + host_checks.SPARE_FILES}" in check.advice


def test_a_store_that_nears_its_map_size_is_a_warning(tmp_path: Path) -> None:
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


def flip(file: Path, near: bytes) -> None:
    """Flips a bit after each place of `near`: old versions of a page may hold it as well."""
    data = bytearray(file.read_bytes())
    at = data.find(near)
    while at >= 0:
        data[at + len(near)] ^= 1
        at = data.find(near, at + 1)
    file.write_bytes(data)


def findings(done: subprocess.CompletedProcess[str], name: str) -> str:
    return next(row["found"] for row in json.loads(done.stdout) if row["check"] == name and row["status"] == "fail")


def test_a_flipped_bit_in_a_metadata_key_is_named_and_nothing_starts(inside: Run, tmp_path: Path) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    flip(tmp_path / "metadata" / "data.mdb", b"ledgers/aud")
    for deep in ((), ("--deep",)):
        done = inside("doctor", "--data-dir", tmp_path, *deep, "--output", "json")
        assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
        assert "is damaged" in findings(done, "ledgers")
        assert "ledgers/aud" in findings(done, "ledgers")
    listed = inside("ledger", "list", "--data-dir", tmp_path)
    assert (listed.returncode, listed.stderr.count("\n")) == (1, 1)
    assert "restore a copy" in listed.stderr


@pytest.mark.parametrize("folder", ["bookie", "metadata"])
def test_a_damaged_page_is_one_line_with_the_file(inside: Run, tmp_path: Path, folder: str) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    file = tmp_path / folder / "data.mdb"
    data = bytearray(file.read_bytes())
    for at in range(2 * 4096, len(data), 4096):
        data[at] ^= 0x80
    file.write_bytes(data)
    done = inside("doctor", "--data-dir", tmp_path, "--deep", "--output", "json")
    assert done.returncode == 1
    assert f"{file} is damaged: page" in findings(done, "ledgers")


def test_a_cluster_that_does_not_answer_fails(inside: Run, tmp_path: Path) -> None:
    done = inside("doctor", "--data-dir", tmp_path, "--output", "json", GNOMON_CLUSTER__METADATA="127.0.0.1:1")
    assert (done.returncode, statuses(done)["metadata"]) == (1, "fail")


def test_bookies_and_copies_of_a_cluster_are_checked() -> None:
    record = LedgerRecord(Quorum(1, 1, 1), (Fragment(EntryId(0), SessionId(1), (BookieId("b"),)),))
    alive, away = {"bookie": "a", "state": "alive"}, {"bookie": "b", "state": "away"}
    assert cluster_checks.bookies_check([alive]).status is CheckStatus.OK
    check = cluster_checks.bookies_check([alive, away])
    assert (check.status, check.found) == (CheckStatus.FAIL, "1 of 2 are away: b")
    assert cluster_checks.bookies_check([{"bookie": "a", "state": "read-only"}]).status is CheckStatus.WARN
    check = cluster_checks.copies_check([alive, away], [("audit", record)], ["other"])
    assert (check.status, check.found) == (CheckStatus.WARN, "2 ledgers lack copies: other, audit")
    assert (
        cluster_checks.copies_check([{"bookie": "b", "state": "alive"}], [("audit", record)], []).status
        is CheckStatus.OK
    )


def test_subscriptions_that_nobody_reads_and_that_keep_records_are_named_with_the_command_that_deletes_them() -> None:
    assert idle_check([]).status is CheckStatus.OK
    found = idle_check([IdleSubscription("flights", partition, "billing", 10) for partition in (0, 1)])
    assert (found.status, found.found) == (
        CheckStatus.WARN,
        "no consumer reads 'billing' of topic 'flights' (20 records): retention keeps the records",
    )
    assert "`gnomon subscription delete TOPIC SUBSCRIPTION`" in found.advice
    many = idle_check([IdleSubscription("flights", 0, f"reader-{number}", 1) for number in range(5)])
    assert "'reader-2' of topic 'flights' (1 records) and 2 more:" in many.found


def test_the_brokers_are_asked_for_idle_subscriptions_and_an_address_that_was_given_has_to_answer(
    inside: Run, tmp_path: Path, broker: KafkaBroker
) -> None:
    for native, status in ((broker.native_address, "ok"), ("127.0.0.1:1", "fail")):
        done = inside("doctor", "--data-dir", tmp_path / "none", "--native-address", native, "--output", "json")
        rows = {row["check"]: row["status"] for row in json.loads(done.stdout)}
        assert rows["subscriptions"] == status


def test_a_damaged_page_of_a_bookie_of_a_cluster_is_found(inside: Run, tmp_path: Path) -> None:
    assert inside("ledger", "create", "audit", "--data-dir", tmp_path).returncode == 0
    (tmp_path / "FORMAT").write_text(f"{FORMAT} bookie\n")
    done = inside("doctor", "--data-dir", tmp_path, "--deep", "--output", "json")
    assert statuses(done)["pages"] == "ok"
    file = tmp_path / "bookie" / "data.mdb"
    file.write_bytes(file.read_bytes()[: 3 * 4096])
    done = inside("doctor", "--data-dir", tmp_path, "--deep", "--output", "json")
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    assert "was cut short" in done.stdout


def test_the_bookies_of_a_cluster_are_asked_for_every_entry(inside: Run, tmp_path: Path) -> None:
    with LedgerProcesses(tmp_path / "c") as cluster:
        where = ("--metadata", cluster.metadata)
        assert inside("ledger", "create", "audit", *where).returncode == 0
        asked = ("doctor", "--data-dir", tmp_path / "none", "--output", "json", "--deep")
        done = inside(*asked, GNOMON_CLUSTER__METADATA=cluster.metadata)
        assert statuses(done)["entries"] == "ok"
        assert "every bookie has its entries of 1 ledgers" in done.stdout


def test_ledgers_on_bookies_of_a_cluster_without_a_record_are_named(inside: Run, tmp_path: Path) -> None:
    async def lose_the_record(metadata: str) -> LedgerId:
        async with connect_ledgers(metadata) as ledgers:
            ledger = await ledgers.open("lost", OpenMode.O_CREATE, quorum=Quorum())
            await ledger.add([b"entry"])
            await ledgers.metadata.txn((), (Delete(ledger_key("lost")),))
            return ledger.id

    with LedgerProcesses(tmp_path / "c", bookies=1) as cluster:
        asked = ("doctor", "--data-dir", tmp_path / "none", "--output", "json", "--deep")
        done = inside(*asked, GNOMON_CLUSTER__METADATA=cluster.metadata)
        assert "every ledger on 1 bookies has a record" in done.stdout
        lost = trio.run(lose_the_record, cluster.metadata)
        done = inside(*asked, GNOMON_CLUSTER__METADATA=cluster.metadata)
        text = f"1 ledgers have entries on bookie bookie-1 and no record in the metadata, first: {lost}"
        assert text in done.stdout
        assert statuses(done)["ledgers"] == "warn"
