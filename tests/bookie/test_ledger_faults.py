"""A ledger over full and failing disks, damaged entries and crashes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from ledger_house import House, Run
from numbered_entries import contents, entries, fill

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.errors import DigestMismatch, LedgerFailed, LedgerFenced, NoSuchLedger, NotEnoughBookies
from gnomon.bookie.ids import SESSION_MAX, BookieId, EntryId, SessionId
from gnomon.bookie.ledgers import appender
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, claim_ledger, create_ledger
from gnomon.bookie.local_bookie import LocalBookie
from gnomon.bookie.record import ledger_key
from gnomon.bookie.storage.entry_store import ENTRIES, EntryStore
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.runtime.world import DiskFailed, DiskFull
from gnomon.testing.storms.ledgers.bookies_at_hand import BookiesAtHand


def test_orphans_of_a_dead_session_never_come_back(run: Run) -> None:
    async def scenario(house: House) -> None:
        first = await house.create()
        await fill(first, 2)
        house.environment.fault = DiskFull("no room")
        first.append([b"lost"], lambda _entry, _error: None)
        await trio.testing.wait_all_tasks_blocked()
        house.environment.fault = None
        house.clock.now += 5
        # An entry that the old writer sent after the lost one is stored nevertheless, after a gap.
        session, confirmed, value = first.session, EntryId(1), b"orphan"
        encoded = encode_entry(first.id, EntryId(3), session, confirmed, 0, [value])
        house.store.add(first.id, EntryId(3), session, confirmed, encoded, lambda _entry, _error: None)
        second = await house.open("ledger")
        assert second.next_entry == 2
        await second.add([b"new"])
        third = await house.open("ledger")
        assert third.next_entry == 3, "the orphan at 3 belongs to a session that ended before entry 2"
        assert await contents(third) == [b"entry 0", b"entry 1", b"new"]

    run(scenario)


def test_a_full_disk_fails_pending_appends_and_the_reopened_ledger_continues(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 2)
        house.environment.fault = DiskFull("no room")
        with pytest.raises(LedgerFailed, match="no room") as caught:
            await ledger.add([b"x"])
        assert not caught.value.outcome_unknown
        with pytest.raises(LedgerFailed):
            await ledger.add([b"y"])
        assert await contents(ledger) == [b"entry 0", b"entry 1"]
        house.environment.fault = None
        house.clock.now += 1
        again = await house.open("ledger")
        await fill(again, 1)
        assert len(await contents(again)) == 3

    run(scenario)


def test_an_append_without_memory_fails_the_pending_ones_and_the_reopened_ledger_continues(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poor(*_arguments: object) -> bytes:
        raise MemoryError

    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 2)
        told: list[Any] = []
        ledger.append([b"pending"], lambda entry, error: told.append((entry, error)))
        with monkeypatch.context() as patch:
            patch.setattr(appender, "encode_entry", poor)
            with pytest.raises(LedgerFailed, match="no memory") as caught:
                ledger.append([b"x"], lambda entry, error: told.append((entry, error)))
        assert caught.value.outcome_unknown
        assert told == [(2, caught.value)]
        with pytest.raises(LedgerFailed):
            await ledger.add([b"y"])
        again = await house.open("ledger")
        await again.add([b"z"])
        assert await contents(again) in ([b"entry 0", b"entry 1", *rest, b"z"] for rest in ([], [b"pending"]))
        assert len(told) == 1

    run(scenario)


def test_after_a_failed_write_the_outcome_is_unknown(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        house.environment.fault = DiskFailed("EIO")
        with pytest.raises(LedgerFailed, match="EIO") as caught:
            await ledger.add([b"x"])
        assert caught.value.outcome_unknown

    run(scenario)


def test_the_outcome_of_an_append_is_unknown_while_a_replacement_bookie_is_not_known(
    tmp_path: Path, clock: Any, make_environment: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        environment = make_environment(tmp_path)
        bookies: Any = BookiesAtHand({BookieId("b0"): LocalBookie(EntryStore(environment, clock))}, clock)
        ledger = await create_ledger(make_metadata(), bookies, "alone")
        bookies.all[BookieId("unheard")] = None
        environment.fault = DiskFull("no room")
        with pytest.raises(LedgerFailed, match="'unheard' is not known here") as caught:
            await ledger.add([b"x"])
        assert caught.value.outcome_unknown
        environment.crash()

    trio.run(main)


def test_a_flipped_bit_is_reported_and_not_read(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 2)
        key = ENTRY_KEY.pack(ledger.id, 0)
        with house.environment.environment.begin(write=True, db=house.environment.databases[ENTRIES]) as transaction:
            value = bytearray(transaction.get(key))
            value[-2] ^= 4
            transaction.put(key, bytes(value))
        with pytest.raises(DigestMismatch):
            await ledger.read(EntryId(0), EntryId(0))
        with ledger.view() as view:
            assert view is not None
            with pytest.raises(DigestMismatch):
                view.payload(EntryId(0))
        assert await ledger.read(EntryId(1), EntryId(1)) == [b"entry 1"]

    run(scenario)


def test_three_bookies_serve_with_one_full_disk_and_not_with_two(
    tmp_path: Path, clock: Any, make_environment: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        metadata = make_metadata()
        environments = [make_environment(tmp_path / str(index)) for index in range(3)]
        stores = {
            BookieId(f"b{index}"): LocalBookie(EntryStore(environment, clock))
            for index, environment in enumerate(environments)
        }
        bookies = BookiesAtHand(stores, clock)
        ledger = await create_ledger(metadata, bookies, "wide", quorum=Quorum(3, 3, 2))
        await fill(ledger, 3)
        environments[1].fault = DiskFull("no room")
        await fill(ledger, 3)
        second = await claim_ledger(metadata, bookies, metadata.keys[ledger_key("wide")])
        with pytest.raises(LedgerFenced):
            await ledger.add([b"late"])
        await fill(second, 1)
        assert await contents(second) == entries(7)
        environments[2].fault = DiskFull("no room")
        with pytest.raises(LedgerFailed) as caught:
            await second.add([b"on one bookie alone"])
        assert caught.value.outcome_unknown
        with pytest.raises(NotEnoughBookies, match="only 1 of 2"):
            await claim_ledger(metadata, bookies, metadata.keys[ledger_key("wide")])
        for environment in environments:
            environment.crash()

    trio.run(main)


def test_a_full_bookie_leaves_outcomes_unknown_of_entries_that_another_bookie_may_have(
    tmp_path: Path, clock: Any, make_environment: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        metadata = make_metadata()
        environments = [make_environment(tmp_path / str(index)) for index in range(2)]
        names = [BookieId(f"b{index}") for index in range(2)]
        stores = {name: LocalBookie(EntryStore(at, clock)) for name, at in zip(names, environments, strict=True)}
        bookies = BookiesAtHand(stores, clock)
        ledger = await create_ledger(metadata, bookies, "striped", quorum=Quorum(2, 1, 1))
        by_name = dict(zip(names, environments, strict=True))
        first, second = (by_name[name] for name in ledger.record.fragments[0].bookies)
        first.automatic = False
        second.fault = DiskFull("no room")
        told: list[Any] = []
        for _ in range(2):
            ledger.append([b"x"], lambda _entry, error: told.append(error))
        await trio.testing.wait_all_tasks_blocked()
        assert [error.outcome_unknown for error in told] == [True, True]
        first.flush()  # now the first entry is stored, and a claim of the ledger finds it
        for environment in environments:
            environment.crash()

    trio.run(main)


@pytest.mark.parametrize("seed", range(40))
def test_a_ledger_under_random_use_and_crashes_behaves_like_a_list(
    seed: int, tmp_path: Path, clock: Any, make_environment: Any, make_metadata: Any
) -> None:
    stream = random.Random(seed)

    async def main() -> None:
        metadata = make_metadata()
        house = House(make_environment(tmp_path / "bookie"), clock, metadata)
        ledger = await house.create()
        sure: list[bytes] = []  # acknowledged, from entry 0 on
        maybe: list[bytes] = []  # sent after `sure`, in order, not acknowledged
        start = 0
        for step in range(40):
            action = stream.choice(("append", "append", "burst", "claim", "crash", "shrink", "read"))
            if action == "append":
                await ledger.add([b"%d" % step])
                sure.append(b"%d" % step)
            elif action == "burst":
                maybe = [b"%d/%d" % (step, number) for number in range(stream.randint(1, 5))]
                for payload in maybe:
                    ledger.append([payload], lambda _entry, _error: None)
                if stream.random() < 0.5:
                    await ledger.drained()
                else:
                    house.environment.crash()
                    house = House(make_environment(tmp_path / "bookie"), clock, metadata)
                    ledger = await house.open("ledger")
                count = ledger.next_entry - len(sure)
                assert 0 <= count <= len(maybe)
                sure.extend(maybe[:count])
            elif action == "claim":
                old, ledger = ledger, await house.open("ledger")
                with pytest.raises(LedgerFenced):
                    await old.add([b"late"])
            elif action == "crash":
                house.environment.crash()
                house = House(make_environment(tmp_path / "bookie"), clock, metadata)
                ledger = await house.open("ledger")
            elif action == "shrink":
                start = max(start, stream.randint(0, len(sure)))
                await ledger.shrink(EntryId(start), force=stream.random() < 0.5)
            assert ledger.next_entry == len(sure)
            assert ledger.start_entry == start
            assert ledger.length_bytes == sum(map(len, sure))
            assert await contents(ledger) == sure[start:]
        for _ in range(3):
            ledger = await house.open("ledger")
            await trio.testing.wait_all_tasks_blocked()  # until the bookie has removed the excluded copies
            await ledger.add([b"more"])
        assert len(ledger.record.fragments) <= 2, "bounds stay although the only bookie has no orphans"
        house.environment.crash()

    trio.run(main)


def promise(house: House, ledger: Ledger, session: int) -> None:
    told: list[object] = []
    house.store.fence(ledger.id, SessionId(session), lambda _result, error: told.append(error))
    house.environment.flush()
    assert told == [None]


def test_a_ledger_whose_record_was_restored_from_an_older_copy_can_be_claimed(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 2)
        promise(house, ledger, 7)
        again = await house.open("ledger")
        assert again.session == 8
        await again.add([b"new"])
        assert await contents(again) == [b"entry 0", b"entry 1", b"new"]

    run(scenario)


def test_a_ledger_that_a_bookie_has_deleted_cannot_be_claimed(run: Run) -> None:
    async def scenario(house: House) -> None:
        promise(house, await house.create(), SESSION_MAX)
        with pytest.raises(NoSuchLedger, match="ledger 'ledger' was deleted"):
            await house.open("ledger")

    run(scenario)
