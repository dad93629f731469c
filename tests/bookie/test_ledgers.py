"""The public client of ledgers, in both forms, against real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio

import gnomon
from gnomon import DigestType, OpenMode, Quorum, connect_ledgers, connect_ledgers_blocking
from gnomon.bookie.errors import (
    EntryNotConfirmed,
    LedgerClosed,
    LedgerExists,
    LedgerFenced,
    LedgerSealed,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
    WrongDigestType,
)
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.ledgers import OF_BROKERS
from gnomon.metadata.client import MetadataUnavailable
from gnomon.testing.storms.processes.ledger_processes import LedgerProcesses


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcesses]:
    with LedgerProcesses(tmp_path_factory.mktemp("cluster") / "c") as cluster:
        yield cluster


def test_every_public_name_is_there() -> None:
    for name in gnomon._MODULES:
        assert getattr(getattr(gnomon, name), "__name__", name) == name  # constants have none
        assert name in dir(gnomon)
    assert not hasattr(gnomon, "nothing")


def test_a_ledger_is_written_followed_claimed_and_sealed_on_trio(cluster: LedgerProcesses) -> None:
    async def main() -> None:
        async with connect_ledgers(cluster.metadata) as ledgers:
            writer = await ledgers.open("trio", OpenMode.O_CREATE, properties={"owner": "me"})
            assert (writer.record.quorum, writer.properties) == (Quorum(3, 3, 2), {"owner": "me"})
            reader = await ledgers.open("trio")
            heard: list[tuple[int, bytes]] = []
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    async for entry, payload in gnomon.follow(reader, EntryId(0)):
                        heard.append((entry, payload))

                nursery.start_soon(listen)
                for text in (b"one", b"two"):
                    await writer.add([text])
                heir = await ledgers.open("trio", OpenMode.O_APPEND)
                with pytest.raises(LedgerFenced):
                    await writer.add([b"late"])
                assert await heir.add([b"th", b"ree"]) == 2
                await heir.seal()
            assert heard == [(0, b"one"), (1, b"two"), (2, b"three")]
            with pytest.raises(LedgerSealed):
                await ledgers.open("trio", OpenMode.O_APPEND)
            assert [name for name, _ in await ledgers.list("tr")] == ["trio"]

    trio.run(main)


def test_a_ledger_is_written_claimed_sealed_and_deleted_with_the_blocking_client(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        writer = ledgers.open("blocking", OpenMode.O_CREATE)
        assert [writer.add([b"one"]), *writer.add_all([b"two", b"three"])] == [0, 1, 2]
        reader = ledgers.open("blocking")
        assert reader.wait_for_lac(EntryId(2)) == 2
        assert reader.read(EntryId(0), EntryId(2)) == [b"one", b"two", b"three"]
        with pytest.raises(EntryNotConfirmed):
            reader.read(EntryId(3), EntryId(3))
        assert reader.wait_for_lac(EntryId(3), seconds=0.05) == 2
        writer.update({"a": 1})
        writer.shrink(EntryId(1), force=True)
        heir = ledgers.open("blocking", OpenMode.O_APPEND)
        assert (heir.start_entry, heir.properties, heir.length_bytes) == (1, {"a": 1}, 11)
        with pytest.raises(LedgerFenced):
            writer.add([b"late"])
        heir.seal()
        assert ledgers.open("blocking").record.sealed
        ledgers.delete("blocking")
        with pytest.raises(NoSuchLedger):
            ledgers.open("blocking")
        writer.close()
    with pytest.raises(LedgerClosed, match="connect again"):
        reader.refresh_lac()


def test_threads_share_the_blocking_client(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        ledger = ledgers.open("threads", OpenMode.O_CREATE)
        threads = [Thread(target=lambda: [ledger.add([b"x"]) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.last_add_confirmed == 79


def test_a_wrong_password_opens_nothing_and_deletes_nothing(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        writer = ledgers.open("secret", OpenMode.O_CREATE, password=b"right", digest_type=DigestType.MAC)
        writer.add([b"one"])
        for mode in (OpenMode.O_RDONLY, OpenMode.O_APPEND):
            with pytest.raises(UnauthorizedAccess):
                ledgers.open("secret", mode, password=b"wrong")
        with pytest.raises(UnauthorizedAccess):
            ledgers.delete("secret")
        assert writer.add([b"two"]) == 1
        assert ledgers.open("secret", OpenMode.O_APPEND, password=b"right").read(EntryId(0), EntryId(1)) == [
            b"one",
            b"two",
        ]


def test_errors_reach_the_caller_unchanged(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        ledgers.open("there", OpenMode.O_CREATE)
        with pytest.raises(LedgerExists):
            ledgers.open("there", OpenMode.O_CREATE)
        with pytest.raises(NotEnoughBookies):
            ledgers.open("wide", OpenMode.O_CREATE, quorum=Quorum(5, 5, 5))
        with pytest.raises(ValueError, match="quorum"):
            ledgers.open("odd", OpenMode.O_CREATE, quorum=Quorum(1, 2, 3))
        for prefix in OF_BROKERS:
            for mode in (OpenMode.O_CREATE, OpenMode.O_APPEND):
                with pytest.raises(ValueError, match="those of brokers"):
                    ledgers.open(f"{prefix}mine", mode)
            with pytest.raises(ValueError, match="those of brokers"):
                ledgers.delete(f"{prefix}mine")
            with pytest.raises(NoSuchLedger):
                ledgers.open(f"{prefix}mine")
        for refused in (ledgers.open, ledgers.delete):
            with pytest.raises(ValueError, match="the name of a ledger is empty"):
                refused("")
            with pytest.raises(TypeError, match="the password is a str: give bytes"):
                refused("there", password="text")
    with pytest.raises(KeyError), connect_ledgers_blocking(cluster.metadata):
        raise KeyError


def test_a_blocking_wait_returns_the_last_add_confirmed_at_its_timeout(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        writer = ledgers.open("late", OpenMode.O_CREATE)
        reader = ledgers.open("late")
        assert reader.wait_for_lac(EntryId(100), seconds=0) == -1
        writer.add_all([b"one", b"two", b"three"])
        assert reader.wait_for_lac(EntryId(100), seconds=1) == 2
        assert reader.read(EntryId(0), EntryId(2)) == [b"one", b"two", b"three"]
        with pytest.raises(ValueError, match="end_entry is -1"):
            writer.shrink(EntryId(-1))


def test_polling_waits_see_a_ledger_that_was_sealed_or_deleted_meanwhile(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        writer = ledgers.open("polled", OpenMode.O_CREATE)
        reader = ledgers.open("polled")
        assert reader.wait_for_lac(EntryId(9), seconds=0) == -1
        writer.add_all([b"one", b"two", b"three"])
        writer.seal()
        assert reader.wait_for_lac(EntryId(9), seconds=0) == 2
        ledgers.delete("polled")
        other = ledgers.open("polled", OpenMode.O_CREATE)
        other.close()
        with pytest.raises(NoSuchLedger):
            reader.refresh_lac()


def test_polling_waits_follow_a_ledger_to_other_bookies(cluster: LedgerProcesses) -> None:
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        writer = ledgers.open("moved", OpenMode.O_CREATE, quorum=Quorum(1, 1, 1))
        reader = ledgers.open("moved")
        (first,) = writer.record.bookies
        cluster.daemons[first].kill()
        try:
            writer.add_all([b"one", b"two"])
            assert writer.record.fragments[-1].bookies != (first,)
            deadline = time.monotonic() + 5
            while (last := reader.wait_for_lac(EntryId(9), seconds=0)) < 0:
                assert time.monotonic() < deadline, "the last add confirmed stays at the old number"
            assert last in (0, 1)
        finally:
            cluster.start_bookie(first)


def test_a_wrong_digest_type_is_refused(cluster: LedgerProcesses) -> None:
    wrong: Any = "MAC"
    with connect_ledgers_blocking(cluster.metadata) as ledgers:
        ledgers.open("plain", OpenMode.O_CREATE)
        for mode in (OpenMode.O_RDONLY, OpenMode.O_APPEND):
            with pytest.raises(WrongDigestType, match="ledger 'plain' has the digest type CRC32C, not MAC"):
                ledgers.open("plain", mode, digest_type=DigestType.MAC)
            with pytest.raises(TypeError, match=r"the digest type is 'MAC': give one of DigestType\.CRC32C"):
                ledgers.open("plain", mode, digest_type=wrong)


def test_an_exception_of_the_block_is_raised_unchanged(cluster: LedgerProcesses) -> None:
    error = KeyError("x")

    async def main() -> None:
        async with connect_ledgers(cluster.metadata) as ledgers:
            ledger = await ledgers.open("left", OpenMode.O_CREATE)
            await ledger.add([b"one"])
            raise error

    with pytest.raises(KeyError) as caught:
        trio.run(main)
    assert caught.value is error


def test_connecting_to_unreachable_metadata_is_an_error() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"), connect_ledgers_blocking("nowhere"):
        pass
    with pytest.raises(MetadataUnavailable), connect_ledgers_blocking("127.0.0.1:1", retry_seconds=0.1):
        pass

    async def main() -> None:
        async with connect_ledgers("127.0.0.1:1", retry_seconds=0.1):
            pass

    with pytest.raises(MetadataUnavailable):
        trio.run(main)


def test_the_next_client_reads_the_last_append(cluster: LedgerProcesses, tmp_path: Path) -> None:
    for number in range(3):
        with connect_ledgers_blocking(cluster.metadata) as ledgers:
            name = f"last-{number}"
            ledgers.open(name, OpenMode.O_CREATE).add_all([b"one", b"two"])
        with connect_ledgers_blocking(cluster.metadata) as ledgers:
            assert ledgers.open(name).last_add_confirmed == 1
