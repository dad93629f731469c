"""A bookie whose store is an older copy of itself (numbers: invariants of `older_copy`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from audits import EAGER, auditor_of
from numbered_entries import contents, entries, fill
from store_calls import LEDGER, add, fence, flip, put_copy, read
from with_cluster import with_cluster

from gnomon.bookie.bookie import Bookie
from gnomon.bookie.errors import EntryUnknown, Fenced, LedgerError, LedgerFenced, NoSuchEntry, NotEnoughBookies
from gnomon.bookie.ids import ANY_SESSION, ENTRY_MAX, FIRST_SESSION, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.node import FOLDER
from gnomon.bookie.record import Fragment, LedgerRecord, LedgerState, Quorum, decode_record, ledger_key
from gnomon.bookie.registration import OLDER, REPAIRED
from gnomon.bookie.storage.entry_store import ENTRIES, EntryStore
from gnomon.bookie.storage.older_copy import OlderCopy, has_orphans, promise_again, remove_unproved
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.storms.ledgers.ledger_cluster import DATA, LedgerClient, LedgerCluster

WIDE = Quorum(3, 3, 2)
HERE, OTHERS = BookieId("here"), (BookieId("a"), BookieId("b"))
OPEN = LedgerRecord(WIDE, (Fragment(EntryId(0), SessionId(3), (HERE, *OTHERS)),), session=SessionId(3))


# --- the rule ---


def test_a_bookie_of_an_open_fragment_refuses_the_writer_since_a_claim_may_have_fenced_the_lost_store() -> None:
    """1."""
    assert promise_again(OPEN, 5, HERE) == 6


def test_a_sealed_ledger_and_one_that_others_store_now_need_no_higher_session() -> None:
    """1."""
    sealed = replace(OPEN, state=LedgerState.SEALED)
    elsewhere = replace(OPEN, fragments=(*OPEN.fragments, Fragment(EntryId(9), SessionId(3), (*OTHERS, BookieId("c")))))
    assert promise_again(sealed, 5, HERE) == promise_again(elsewhere, 5, HERE) == 3


def test_a_record_that_cannot_be_read_counts_as_that_of_an_open_fragment() -> None:
    """1, 2."""
    assert promise_again(None, 5, HERE) == 6
    assert has_orphans(None)


def test_a_ledger_on_one_bookie_has_no_orphans() -> None:
    """2."""
    assert has_orphans(OPEN)
    assert not has_orphans(replace(OPEN, quorum=Quorum()))


def removed(environment: Any) -> int:
    """The number of copies of LEDGER that were removed."""
    count, end, proved = 0, ENTRY_MAX, {}
    while end is not None:
        with environment.environment.begin(write=True, buffers=True) as transaction:
            gone, end = remove_unproved(transaction, environment.databases[ENTRIES], LEDGER, end, proved)
        count += gone
    return count


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_only_copies_below_a_last_add_confirmed_of_their_own_session_are_kept(
    manual: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """2."""
    monkeypatch.setattr("gnomon.bookie.storage.removal.CHUNK_ENTRIES", chunk)
    store = EntryStore(manual, clock)
    for entry in range(4):
        add(store, entry, session=1)  # the last one proves 2
    for entry in (4, 5, 6):
        add(store, entry, session=2)  # the last one proves 5, of its own session
    add(store, 0, ledger=LedgerId(LEDGER - 1))
    add(store, 0, ledger=LedgerId(LEDGER + 1))
    manual.flush()
    assert removed(manual) == 2
    with store.view() as view:
        here = view.present(LEDGER, EntryId(0), EntryId(9), ANY_SESSION)
        assert here == [(0, 2), (4, 5)]
        for ledger in (LEDGER - 1, LEDGER + 1):
            assert view.present(LedgerId(ledger), EntryId(0), EntryId(9), ANY_SESSION) == [(0, 0)]
    assert removed(manual) == 2, "the last copy of each session proves those before it, not itself"


def test_a_damaged_copy_proves_nothing(manual: Any, clock: Any) -> None:
    """2."""
    store = EntryStore(manual, clock)
    for entry in range(3):
        add(store, entry)
    manual.flush()
    flip(manual, 2)
    assert removed(manual) == 2
    assert read(store, 0) == b"x"


def test_an_older_copy_answers_unknown_of_ledgers_that_existed_when_it_was_found(manual: Any, clock: Any) -> None:
    """3."""
    store = EntryStore(manual, clock, may_have_lost=OlderCopy("an older copy", LEDGER))
    add(store, 0)
    manual.flush()
    assert read(store, 0) == b"x"
    with pytest.raises(EntryUnknown, match="an older copy"):
        read(store, 1)
    with pytest.raises(NoSuchEntry):
        read(store, 1, ledger=LedgerId(LEDGER + 1))
    store.repaired()
    with pytest.raises(NoSuchEntry):
        read(store, 1)


# --- in a cluster ---


class Disks:
    """Takes copies of bookies' disks, and puts them back."""

    def __init__(self, client: LedgerClient, cluster: LedgerCluster) -> None:
        self._client, self._cluster = client, cluster

    async def stopped(self, name: BookieId, work: Callable[[Machine], object]) -> None:
        """Stops a bookie, and starts it again after `work`."""
        machine = self._cluster.bookies[name]
        machine.kill()
        work(machine)
        machine.start()
        while await self._answers(name) is False:
            await self._client.world.clock.sleep(0.2)

    async def _answers(self, name: BookieId) -> bool:
        try:
            await self.bookie(name).last_add_confirmed(LedgerId(1))
        except Exception:
            return False
        return True

    def bookie(self, name: BookieId) -> Bookie:
        bookie = self._client.bookies.get(name)
        assert bookie is not None
        return bookie

    async def copied(self, name: BookieId) -> bytes:
        images: list[bytes] = []
        await self.stopped(name, lambda machine: images.append(machine.disk.image(DATA / FOLDER)))
        return images[0]

    async def put_back(self, name: BookieId, image: bytes) -> None:
        await self.stopped(name, lambda machine: machine.disk.put_back(DATA / FOLDER, image))


Work = Callable[[LedgerClient, LedgerCluster, Disks], Awaitable[None]]


def with_disks(work: Work, bookies: int = 3) -> None:
    with_cluster(lambda client, cluster: work(client, cluster, Disks(client, cluster)), bookies=bookies)


async def aged(client: LedgerClient, disks: Disks, name: BookieId) -> tuple[Ledger, bytes]:
    """A ledger with ten entries, of which the returned copy of a bookie's disk has the first five."""
    ledger = await client.create("ledger", WIDE)
    await fill(ledger, 5)
    image = await disks.copied(name)
    ledger = await client.claim("ledger")
    await fill(ledger, 5)
    return ledger, image


def test_an_older_copy_serves_what_it_proves_and_answers_unknown_about_the_rest() -> None:
    """2, 3."""

    async def work(client: LedgerClient, cluster: LedgerCluster, disks: Disks) -> None:
        name = cluster.names[0]
        ledger, image = await aged(client, disks, name)
        await disks.put_back(name, image)
        bookie = disks.bookie(name)
        for entry in range(4):
            assert (await bookie.read(ledger.id, EntryId(entry), ANY_SESSION)).payload == b"entry %d" % entry
        for entry in range(4, 11):
            with pytest.raises(EntryUnknown, match="older copy"):
                await bookie.read(ledger.id, EntryId(entry), ANY_SESSION)
        later = await client.create("later", WIDE)
        with pytest.raises(NoSuchEntry):
            await bookie.read(later.id, EntryId(0), ANY_SESSION)
        item = await client.metadata.get(OLDER + name)
        assert item is not None
        assert b"older copy" in item.value
        assert await contents(await client.follow("ledger")) == entries(10)

    with_disks(work)


def test_an_older_copy_refuses_the_writer_that_the_lost_store_may_have_fenced() -> None:
    """1: a claimer fenced two bookies, one of them lost that, and the claim is recorded later."""

    async def work(client: LedgerClient, cluster: LedgerCluster, disks: Disks) -> None:
        name = cluster.names[0]
        ledger, image = await aged(client, disks, name)
        stored = await client.metadata.get(ledger_key("ledger"))
        assert stored is not None
        for fenced in cluster.names[:2]:
            await disks.bookie(fenced).fence(ledger.id, SessionId(stored.version + 1))
        await disks.put_back(name, image)
        cluster.bookies[cluster.names[1]].kill()  # its refusal may be faster than the others' answers
        with pytest.raises(LedgerFenced):
            await ledger.add([b"two of three bookies would have acknowledged it"])
        cluster.bookies[cluster.names[1]].start()
        heir = await client.claim("ledger")
        assert (await contents(heir))[:10] == entries(10), "one bookie may have the refused entry"
        await fill(heir, 1)

    with_disks(work)


def test_a_recovery_believes_no_older_copy_that_an_entry_does_not_exist() -> None:
    """3."""

    async def work(client: LedgerClient, cluster: LedgerCluster, disks: Disks) -> None:
        older, away, lacking = cluster.names
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        image = await disks.copied(older)
        ledger = await client.claim("ledger")
        cluster.bookies[lacking].kill()
        await fill(ledger, 5)
        await disks.put_back(older, image)
        cluster.bookies[away].kill()
        cluster.bookies[lacking].start()
        with trio.fail_after(60):
            while True:
                try:
                    await client.claim("ledger")
                except NotEnoughBookies as error:
                    if "is not certain" in str(error):
                        break
                except LedgerError:
                    pass
                await client.world.clock.sleep(0.5)
        cluster.bookies[away].start()
        while True:
            try:
                assert await contents(await client.claim("ledger")) == entries(10)
                break
            except NotEnoughBookies:
                await client.world.clock.sleep(0.5)

    with_disks(work)


def test_the_auditor_repairs_an_older_copy_which_then_answers_as_any_bookie() -> None:
    """4."""

    async def work(client: LedgerClient, cluster: LedgerCluster, disks: Disks) -> None:
        name = cluster.names[0]
        ledger, image = await aged(client, disks, name)
        sealed = await client.create("sealed", WIDE)
        await fill(sealed, 3)
        await sealed.seal()
        await disks.put_back(name, image)
        auditor = auditor_of(client, EAGER)
        await auditor.audit()
        assert auditor.totals.bookies_repaired == 1
        item = await client.metadata.get(OLDER + name)
        assert item is not None
        assert item.value == REPAIRED
        await client.world.clock.sleep(1)
        bookie = disks.bookie(name)
        for at, count in ((ledger.id, 10), (sealed.id, 3)):
            assert await bookie.present(at, EntryId(0), EntryId(99), ANY_SESSION) == [(0, count - 1)]
            with pytest.raises(NoSuchEntry):
                await bookie.read(at, EntryId(count), ANY_SESSION)
        with pytest.raises(LedgerFenced):
            await ledger.add([b"its ledger was claimed for the repair"])
        await auditor.audit()
        assert auditor.totals.bookies_repaired == 1
        stored = await client.metadata.get(ledger_key("ledger"))
        assert stored is not None
        assert decode_record(stored.value).session == stored.version, "no second claim"

    with_disks(work)


def test_a_bookie_in_repair_stays_so_over_a_restart_and_begins_again_with_another_older_copy() -> None:
    """4, 5."""

    async def work(client: LedgerClient, cluster: LedgerCluster, disks: Disks) -> None:
        name = cluster.names[0]
        ledger, image = await aged(client, disks, name)
        key = OLDER + name
        await disks.put_back(name, image)
        first = await client.metadata.get(key)
        await disks.stopped(name, lambda machine: None)
        assert await client.metadata.get(key) == first
        with pytest.raises(EntryUnknown):
            await disks.bookie(name).read(ledger.id, EntryId(9), ANY_SESSION)
        await disks.put_back(name, image)
        second = await client.metadata.get(key)
        assert first is not None
        assert second is not None
        assert second.mod_revision > first.mod_revision
        auditor = auditor_of(client, EAGER)
        await auditor._attempt(auditor._make_whole(first))
        assert await client.metadata.get(key) == second, "the repair of the first copy says nothing about the second"
        await auditor.audit()
        await disks.stopped(name, lambda machine: None)
        with pytest.raises(NoSuchEntry):
            await disks.bookie(name).read(ledger.id, EntryId(10), ANY_SESSION)

    with_disks(work)


def test_an_orphan_that_records_exclude_no_more_does_not_come_back_with_an_older_copy() -> None:
    """2."""

    async def work(client: LedgerClient, cluster: LedgerCluster, disks: Disks) -> None:
        name, *others = cluster.names
        network = cluster.simulation.network
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 3)
        for other in others:
            network.block("client", other)
        with trio.move_on_after(2):
            await ledger.add([b"an orphan: one bookie has it"])
        image = await disks.copied(name)

        async def go_on(another: LedgerClient) -> None:
            cluster.bookies[name].kill()
            heir = await another.claim("ledger")
            await fill(heir, 3)
            cluster.bookies[name].start()
            for _ in range(3):
                await another.world.clock.sleep(5)
                heir = await another.claim("ledger")
            assert heir.record.fragment_of(EntryId(3)).session == FIRST_SESSION, "the orphan is excluded"
            await auditor_of(another, EAGER).audit()
            assert await contents(heir) == entries(6)

        await cluster.run_client("heir", go_on)
        await disks.put_back(name, image)
        with pytest.raises(EntryUnknown):
            await disks.bookie(name).read(ledger.id, EntryId(3), ANY_SESSION)

    with_disks(work)


def test_a_copy_refused_by_a_promise_made_again_stays_out(manual: Any, clock: Any) -> None:
    """1."""
    store = EntryStore(manual, clock)
    fence(store, 6)
    manual.flush()
    refused = put_copy(store, 0, written_by=3, session=5)
    manual.flush()
    assert isinstance(refused[0], Fenced)
