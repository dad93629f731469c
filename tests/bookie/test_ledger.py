"""A ledger on one bookie: opened, written, taken over, read, shrunk, rolled and deleted."""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from types import CellType, FunctionType, MethodType
from typing import Any

import pytest
import trio
import trio.testing
from ledger_house import House, Run
from numbered_entries import contents, entries, fill
from turns import turns_during

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.errors import (
    DigestMismatch,
    EntryNotConfirmed,
    EntryShrunk,
    LedgerClosed,
    LedgerError,
    LedgerExists,
    LedgerFenced,
    LedgerSealed,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
    WrongDigestType,
)
from gnomon.bookie.ids import NO_ENTRY, EntryId
from gnomon.bookie.ledgers.catalog import (
    DigestType,
    Ledger,
    OpenMode,
    Quorum,
    adopt_ledger,
    claim_ledger,
    create_ledger,
    delete_ledger,
    delete_ledgers,
    list_ledgers,
)
from gnomon.bookie.record import ledger_key
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.metadata.client import Compare, Put


def test_appends_are_pipelined_and_answered_in_order(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        answers: list[tuple[int, LedgerError | None]] = []
        chunk = bytearray(b"0")
        for number in range(5):
            chunk[0] = ord("0") + number
            assert ledger.append([b"n", chunk], lambda entry, error: answers.append((entry, error))) == number
        assert (answers, ledger.last_add_confirmed, ledger.next_entry) == ([], NO_ENTRY, 5)
        await ledger.drained()
        assert answers == [(number, None) for number in range(5)]
        assert await contents(ledger) == [b"n%d" % number for number in range(5)]
        assert ledger.length_bytes == 10
        with ledger.view() as view:
            assert view is not None
            assert bytes(view.payload(EntryId(3))) == b"n3"

    run(scenario)


def test_opening_costs_at_most_one_metadata_read_and_one_write(run: Run) -> None:
    async def scenario(house: House) -> None:
        def costs() -> tuple[int, int]:
            counts = house.metadata.reads, house.metadata.writes
            house.metadata.reads = house.metadata.writes = 0
            return counts

        ledger = await house.create()
        assert costs() == (0, 1)
        await fill(ledger, 3)
        reader = await house.open("ledger", OpenMode.O_RDONLY)
        assert costs() == (1, 0)
        assert await contents(reader) == await contents(ledger)
        assert (await house.open("ledger")).next_entry == 3
        assert costs() == (1, 1)

    run(scenario)


def test_a_second_writer_continues_the_ledger_and_fences_the_first(run: Run) -> None:
    async def scenario(house: House) -> None:
        first = await house.create(properties={"epoch": 1})
        await fill(first, 3)
        second = await house.open("ledger", properties={"epoch": 2})
        assert (second.id, second.next_entry, second.length_bytes) == (first.id, 3, first.length_bytes)
        assert second.session > first.session
        assert second.properties == {"epoch": 2}
        answers: list[LedgerError | None] = []
        for _ in range(2):
            first.append([b"late"], lambda _entry, error: answers.append(error))
        await trio.testing.wait_all_tasks_blocked()
        assert all(isinstance(error, LedgerFenced) and error.outcome_unknown for error in answers)
        assert len(answers) == 2
        with pytest.raises(LedgerFenced):
            first.append([b"later"], lambda _entry, _error: None)
        await fill(second, 2)
        assert await contents(second) == entries(5)

    run(scenario)


def test_stored_but_unanswered_entries_are_recovered(run: Run) -> None:
    async def scenario(house: House) -> None:
        first = await house.create()
        await fill(first, 2)
        house.environment.automatic = False
        for number in range(3):
            first.append([b"pending %d" % number], lambda _entry, _error: None)
        house.environment.automatic = True
        trio.lowlevel.current_trio_token().run_sync_soon(house.environment.flush)
        second = await claim_ledger(house.metadata, house.bookies, house.metadata.keys[ledger_key("ledger")])
        assert (await contents(second))[2:] == [b"pending 0", b"pending 1", b"pending 2"]
        assert second.length_bytes == 2 * 7 + 3 * 9

    run(scenario)


def test_a_claim_with_an_outdated_record_is_refused_and_does_not_stop_the_writer(run: Run) -> None:
    async def scenario(house: House) -> None:
        await fill(await house.create(), 2)
        stored = house.metadata.keys[ledger_key("ledger")]
        winner = await claim_ledger(house.metadata, house.bookies, stored)
        await winner.add([b"entry 2"])
        with pytest.raises(LedgerFenced, match="try again"):
            await claim_ledger(house.metadata, house.bookies, stored)
        await winner.add([b"entry 3"])
        assert await contents(winner) == entries(4)

    run(scenario)


def test_names_are_unique_and_modes_are_checked(run: Run) -> None:
    async def scenario(house: House) -> None:
        with pytest.raises(NoSuchLedger):
            await house.open("ledger")
        await house.create()
        with pytest.raises(LedgerExists):
            await house.create()
        with pytest.raises(ValueError, match="alone"):
            await house.open("ledger", OpenMode.O_APPEND | OpenMode.O_RDONLY)
        with pytest.raises(NotEnoughBookies) as wide:
            await house.create("wide", quorum=Quorum(3, 3, 2))
        assert not wide.value.outcome_unknown
        reader = await house.open("ledger", OpenMode.O_RDONLY)
        with pytest.raises(LedgerClosed):
            await reader.add([b"x"])
        assert [name for name, _ in await list_ledgers(house.metadata, "led")] == ["ledger"]

    run(scenario)


def test_a_wrong_password_reads_writes_and_fences_nothing(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create(password=b"secret")
        await fill(ledger, 1)
        before = dict(house.metadata.keys)
        for mode in (OpenMode.O_APPEND, OpenMode.O_RDONLY):
            with pytest.raises(UnauthorizedAccess):
                await house.open("ledger", mode, password=b"guess")
        with pytest.raises(UnauthorizedAccess):
            await delete_ledger(house.metadata, house.bookies, "ledger", b"guess")
        assert house.metadata.keys == before
        await fill(ledger, 1)
        assert len(await contents(await house.open("ledger", password=b"secret"))) == 2

    run(scenario)


def test_entries_of_a_ledger_with_a_mac_are_readable_only_with_its_password(run: Run) -> None:
    async def scenario(house: House) -> None:
        with pytest.raises(ValueError, match="password"):
            await house.create("open", digest_type=DigestType.MAC)
        ledger = await house.create(digest_type=DigestType.MAC, password=b"secret")
        await fill(ledger, 3)
        assert ledger.length_bytes == len(b"entry 0") * 3
        again = await house.open("ledger", password=b"secret")
        assert await contents(again) == [b"entry 0", b"entry 1", b"entry 2"]
        with again.view() as view:
            assert view is not None
            assert bytes(view.payload(EntryId(1))) == b"entry 1"
        following = await again.roll("next", properties={})
        await fill(following, 1)
        with pytest.raises(UnauthorizedAccess):
            await house.open("next", OpenMode.O_RDONLY)
        forged = encode_entry(following.id, EntryId(0), following.session, NO_ENTRY, 7, [bytes(16), b"entry 9"])
        entries = house.environment.databases[ENTRIES]
        await house.environment.commit(
            lambda transaction: transaction.put(ENTRY_KEY.pack(following.id, 0), forged, db=entries)
        )
        await following.add([b"after"])
        with pytest.raises(DigestMismatch):
            await contents(following)

    run(scenario)


def test_a_reader_follows_the_tail_across_a_change_of_writer_until_the_seal(run: Run) -> None:
    async def scenario(house: House) -> None:
        writer = await house.create()
        reader = await house.open("ledger", OpenMode.O_RDONLY)
        seen: list[bytes] = []

        async def follow() -> None:
            following = EntryId(0)
            while (last := await reader.wait_for_lac(following)) >= following:
                seen.extend(await reader.read(following, last))
                following = EntryId(last + 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            await fill(writer, 2)
            await trio.testing.wait_all_tasks_blocked()
            assert seen == [b"entry 0", b"entry 1"]
            with pytest.raises(EntryNotConfirmed):
                await reader.read(EntryId(2), EntryId(2))
            second = await house.open("ledger")
            await fill(second, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert len(seen) == 3
            await second.seal()
        assert reader.record.sealed

    run(scenario)


def test_a_waiting_reader_is_notified_of_the_deletion(run: Run) -> None:
    async def scenario(house: House) -> None:
        await house.create()
        reader = await house.open("ledger", OpenMode.O_RDONLY)

        async def wait() -> None:
            with pytest.raises(NoSuchLedger):
                await reader.wait_for_lac(EntryId(0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await delete_ledger(house.metadata, house.bookies, "ledger")

    run(scenario)


def test_a_shrunk_ledger_loses_entries_and_keeps_its_next_entry_id_and_length(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 5)
        length = ledger.length_bytes
        with pytest.raises(EntryNotConfirmed):
            await ledger.shrink(EntryId(6))
        await ledger.shrink(EntryId(3), force=True)
        await ledger.shrink(EntryId(1))
        assert ledger.start_entry == 3
        with pytest.raises(EntryShrunk, match="now 3"):
            await ledger.read(EntryId(2), EntryId(3))
        assert await contents(ledger) == [b"entry 3", b"entry 4"]
        await ledger.shrink(EntryId(5), force=True)
        reopened = await house.open("ledger")
        assert (reopened.next_entry, reopened.start_entry, reopened.length_bytes) == (5, 5, length)
        await fill(reopened, 1)
        assert await contents(reopened) == [b"entry 5"]

    run(scenario)


def test_rolling_seals_the_old_ledger_and_creates_the_next_in_one_transaction(run: Run) -> None:
    async def scenario(house: House) -> None:
        first = await house.create("chain/1")
        first.append([b"pending"], lambda _entry, _error: None)
        writes = house.metadata.writes
        second = await first.roll(
            "chain/2", properties={"epoch": 1}, sealed_properties={"end": 1}, also=[Put("k", b"v")]
        )
        assert house.metadata.writes == writes + 1
        assert house.metadata.keys["k"].value == b"v"
        assert (first.record.sealed, first.record.last_entry, first.properties) == (True, 0, {"end": 1})
        with pytest.raises(LedgerSealed):
            first.append([b"x"], lambda _entry, _error: None)
        with pytest.raises(LedgerSealed):
            await house.open("chain/1")
        await fill(second, 1)
        chain = (await house.metadata.range(ledger_key("chain/"))).items
        handles = [adopt_ledger(house.metadata, house.bookies, item) for item in chain]
        assert await contents(handles[0]) == [b"pending"]
        assert handles[0].record.length_bytes == 7
        assert await handles[1].refresh_lac() == 0
        assert await delete_ledgers(house.metadata, chain[:1], compare=[Compare.absent("k")]) is False
        assert await delete_ledgers(house.metadata, chain[:1])
        assert [name for name, _ in await list_ledgers(house.metadata)] == ["chain/2"]

    run(scenario)


def test_a_writer_whose_ledger_was_claimed_cannot_change_its_record(run: Run) -> None:
    async def scenario(house: House) -> None:
        first = await house.create()
        await fill(first, 2)
        await house.open("ledger")
        before = dict(house.metadata.keys)
        for change in (first.shrink(EntryId(1)), first.update({"a": 1}), first.roll("next", properties={})):
            with pytest.raises(LedgerFenced):
                await change
        assert house.metadata.keys == before

    run(scenario)


def test_a_ledger_created_again_never_shows_old_entries(run: Run) -> None:
    async def scenario(house: House) -> None:
        old = await house.create()
        await fill(old, 3)
        stored = house.metadata.keys[ledger_key("ledger")]
        await delete_ledgers(house.metadata, [stored])  # the entries are still on the disk
        new = await house.create()
        assert (new.next_entry, await contents(new)) == (0, [])
        old.append([b"late"], lambda _entry, _error: None)
        await fill(new, 1)
        assert await contents(await house.open("ledger")) == [b"entry 0"]

    run(scenario)


def test_the_recovery_of_a_long_tail_yields_to_other_tasks(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        for _ in range(50):
            ledger.append([b"x"], lambda _entry, _error: None)
        await ledger.drained()
        turns = await turns_during(house.open("ledger"))
        assert turns > 50, "one for each entry of the tail, at least"

    run(scenario)


def test_a_closed_handle_answers_pending_appends_and_refuses_later_ones(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        answers: list[LedgerError | None] = []
        ledger.append([b"x"], lambda _entry, error: answers.append(error))
        await ledger.close()
        assert answers == [None]
        with pytest.raises(LedgerClosed):
            ledger.append([b"y"], lambda _entry, _error: None)

    run(scenario)


def test_calls_of_the_writer_of_a_deleted_ledger_report_the_deletion(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 2)
        await delete_ledger(house.metadata, house.bookies, "ledger")
        for change in (ledger.update({}), ledger.shrink(EntryId(1)), ledger.add([b"late"]), ledger.add([b"later"])):
            with pytest.raises(NoSuchLedger, match=r"^ledger 'ledger' was deleted$") as told:
                await change
            assert not told.value.outcome_unknown
        for call in (ledger.seal(), ledger.wait_for_lac(EntryId(9))):
            with pytest.raises(NoSuchLedger, match="was deleted"):
                await call
        await ledger.close()

    run(scenario)


def test_a_claim_of_a_ledger_deleted_meanwhile_reports_the_deletion(run: Run) -> None:
    async def scenario(house: House) -> None:
        await house.create()
        stored = house.metadata.keys[ledger_key("ledger")]
        await delete_ledger(house.metadata, house.bookies, "ledger")
        with pytest.raises(NoSuchLedger, match=r"^ledger 'ledger' was deleted$"):
            await claim_ledger(house.metadata, house.bookies, stored)

    run(scenario)


def test_invalid_entry_ids_are_refused_with_the_name_of_their_parameter(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await fill(ledger, 3)
        wrong: list[tuple[str, Callable[[Any], Awaitable[object]], int]] = [
            ("end_entry", ledger.shrink, 0),
            ("entry", ledger.wait_for_lac, -1),
            ("first", lambda number: ledger.read(number, EntryId(1)), 0),
            ("last", lambda number: ledger.read(EntryId(0), number), -1),
        ]
        for name, call, lowest in wrong:
            for number in (lowest - 1, -(2**70), 2**63):
                with pytest.raises(
                    ValueError, match=f"^{name} is {number}: give the number of an entry, from {lowest}"
                ):
                    await call(number)
            for nothing in (1.0, True, "1", None):
                with pytest.raises(TypeError, match=f"^{name} is a {type(nothing).__name__}: give the number"):
                    await call(nothing)
            await call(lowest)
        assert ledger.start_entry == 0
        assert await contents(ledger) == entries(3)

    run(scenario)


def test_a_wrong_digest_type_is_refused_with_the_names_of_both_types(run: Run) -> None:
    async def scenario(house: House) -> None:
        await house.create("plain")
        await house.create("keyed", digest_type=DigestType.MAC, password=b"secret")
        before = dict(house.metadata.keys)
        for mode in (OpenMode.O_RDONLY, OpenMode.O_APPEND):
            with pytest.raises(WrongDigestType, match="'plain' has the digest type CRC32C, not MAC: give that one"):
                await house.open("plain", mode, digest_type=DigestType.MAC)
            with pytest.raises(WrongDigestType, match="'keyed' has the digest type MAC, not CRC32C: give that one"):
                await house.open("keyed", mode, digest_type=DigestType.CRC32C, password=b"secret")
            with pytest.raises(UnauthorizedAccess):
                await house.open("keyed", mode, digest_type=DigestType.CRC32C)
        assert house.metadata.keys == before
        await house.open("plain", digest_type=DigestType.CRC32C)
        await house.open("keyed", digest_type=DigestType.MAC, password=b"secret")
        await house.open("keyed", password=b"secret")

    run(scenario)


def test_waiting_on_the_writing_handle_ends_with_the_append_the_seal_or_the_close(run: Run) -> None:
    async def scenario(house: House) -> None:
        sealed, closed = await house.create("sealed"), await house.create("closed")
        heard: list[int] = []

        async def wait(ledger: Ledger, entry: int) -> None:
            heard.append(await ledger.wait_for_lac(EntryId(entry)))

        async def wait_in_vain() -> None:
            with pytest.raises(LedgerClosed):
                await closed.wait_for_lac(EntryId(0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, sealed, 0)
            nursery.start_soon(wait, sealed, 9)
            nursery.start_soon(wait_in_vain)
            await trio.testing.wait_all_tasks_blocked()
            await fill(sealed, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert heard == [0]
            await sealed.seal()
            await closed.close()
        assert heard == [0, 0]

    run(scenario)


def test_the_writer_of_an_unfollowed_ledger_sends_a_confirmation_only_with_the_next_entry(run: Run) -> None:
    async def act(house: House) -> None:
        ledger = await create_ledger(house.metadata, house.bookies, "ledger", followed=False)
        await fill(ledger, 3)
        assert (await house.open("ledger", OpenMode.O_RDONLY)).last_add_confirmed == 1
        claimed = await house.open("ledger")
        assert await claimed.read(EntryId(0), EntryId(2)) == entries(3)

    run(act)


def test_an_idle_open_ledger_holds_no_queue_lock_set_or_closure(run: Run) -> None:
    def by_type() -> Counter[type]:
        gc.collect()
        return Counter(map(type, gc.get_objects()))

    async def act(house: House) -> None:
        many, ledgers = 100, [await house.create("before")]
        await fill(ledgers[0], 3)
        before = by_type()
        for number in range(many):
            ledgers.append(await house.create(str(number)))
            await fill(ledgers[-1], 3)
        more = by_type() - before
        for kind in (deque, set, trio.Lock, FunctionType, CellType, MethodType):
            assert more[kind] < many, kind

    run(act)
