"""Bugs in replicated ledgers; the sweep over ledgers looks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gnomon.bookie import claim as claim_module
from gnomon.bookie import copies as copies_module
from gnomon.bookie import entry as entry_module
from gnomon.bookie import ledger as ledger_module
from gnomon.bookie import record as records
from gnomon.bookie import removal
from gnomon.bookie.entry_store import EntryStore, FenceResult
from gnomon.bookie.errors import Fenced
from gnomon.bookie.handle import Ledger
from gnomon.bookie.ids import ANY_SESSION, ENTRY_MAX, NO_ENTRY
from gnomon.bookie.record import Quorum, ledger_key
from gnomon.bookie.recovery import Recovery
from gnomon.bookie.remote import RemoteBookie
from gnomon.bookie.repair import LedgerRepair
from gnomon.bookie.store_view import StoreView
from gnomon.bookie.writer import LedgerWriter
from gnomon.metadata.client import Compare, Field, LeaseNotFound, MetadataUnavailable, Put, Revision
from gnomon.metadata.presence import Presence
from gnomon.metadata.remote import _Watcher
from gnomon.testing.faults import Fault, FaultMix
from gnomon.testing.ledger_clients import Habits
from gnomon.testing.ledger_scenario import LedgerScenario
from gnomon.testing.simulated_disk import DiskConditions
from gnomon.testing.simulated_network import NetworkConditions

from planted.planted_bug import Plant, PlantedBug


@dataclass(frozen=True)
class LedgerBug(PlantedBug):
    """A bug, and the scenario that looks for it where that is not the sweep's own."""

    scenario: LedgerScenario


LEDGER_BUGS: list[LedgerBug] = []
SWEEP = LedgerScenario()
NARROW = LedgerScenario(
    names=1,
    isolated=0.0,
    quorum=Quorum(3, 3, 2),
    bookies=3,
    habits=Habits(5, 10, 0.05, claim=0.3, linger=0.5, shrink=0.0, seal=0.0, delete=0.0, read=0.2),
    mix=FaultMix(
        {Fault.PARTITION: 0.3, Fault.ONE_WAY_PARTITION: 0.6, Fault.RESET: 1.0, Fault.KILL: 5.0},
        NetworkConditions(latency_seconds_mean=0.01),
        DiskConditions(sync_seconds_mean=0.002),
    ),
)
"""One ledger that is claimed again and again on three bookies, each of which some of its users do not reach."""
BURSTS = replace(NARROW, habits=Habits(40, 10, 0.05, claim=0.3, linger=0.5, shrink=0.0, seal=0.0, delete=0.0, read=0.2))
"""The same with more orphans at a time."""
SPARE = replace(
    NARROW,
    bookies=5,
    habits=Habits(40, 10, 0.02, claim=0.05, linger=0.0, shrink=0.0, seal=0.0, delete=0.0, read=0.0),
    mix=FaultMix(
        {Fault.PARTITION: 0.5, Fault.POWER_LOSS: 0.5, Fault.RESET: 0.3, Fault.KILL: 2.0},
        NetworkConditions(latency_seconds_mean=0.01),
        DiskConditions(sync_seconds_mean=0.02),
    ),
)
"""One ledger that is written to all the time, while bookies are lost and replaced."""
ISOLATED = replace(SWEEP, isolated=1.0)
"""Bookies come back after records have forgotten what they have."""


def planted(
    name: str, *, breaks: str, quick: bool = False, found_by: str = "", scenario: LedgerScenario = SWEEP
) -> Callable[[Plant], Plant]:
    """Lists a bug; the function decorated patches the product."""

    def decorate(plant: Plant) -> Plant:
        LEDGER_BUGS.append(LedgerBug(name, breaks, plant, quick, None, found_by, scenario))
        return plant

    return decorate


# --- claims ---


@planted("recovery reads that do not fence", breaks="bookie.recovery 1")
def reads_that_do_not_fence(patch: pytest.MonkeyPatch) -> None:
    fence = EntryStore.fence

    def answering(store: Any, ledger: Any, session: Any, done: Any) -> None:
        promise, store._promise = store._promise, lambda *_: None
        try:
            fence(store, ledger, session, done)
        finally:
            store._promise = promise

    patch.setattr(EntryStore, "fence", answering)


@planted("coverage off by one: one negative answer too few ends a ledger", breaks="bookie.recovery 4", quick=True)
def coverage_off_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quorum, "negatives_needed", property(lambda quorum: quorum.write_quorum - quorum.ack_quorum))


@planted("one bookie is fenced, the others' last add confirmed is believed as it is", breaks="bookie.recovery 1")
def unfenced_believed(patch: pytest.MonkeyPatch) -> None:
    fence = RemoteBookie.fence
    fenced: list[tuple[int, int]] = []

    async def once(bookie: Any, ledger: Any, session: Any) -> FenceResult:
        if (ledger, session) not in fenced:
            fenced.append((ledger, session))
            return await fence(bookie, ledger, session)
        return FenceResult(NO_ENTRY, (await bookie.last_add_confirmed(ledger)).entry)

    patch.setattr(RemoteBookie, "fence", once)


@planted("the last add confirmed is taken for the end", breaks="bookie.recovery 2")
def lac_is_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "next_read", lambda recovery: None)


@planted("the tail is not copied before the claim", breaks="bookie.recovery 5")
def tail_not_copied(patch: pytest.MonkeyPatch) -> None:
    async def nothing(driver: Any) -> None:
        pass

    patch.setattr(claim_module._Driver, "write_tail", nothing)


@planted("what was read ahead counts beyond its fragment", breaks="bookie.recovery, bookie.record 2", scenario=NARROW)
def read_ahead_beyond(patch: pytest.MonkeyPatch) -> None:
    entry = claim_module._Copy.entry

    async def ahead(copy: Any, at: Any, minimum_session: Any) -> Any:
        known = copy._read is not None and copy._first <= at < copy._read.scanned_to
        return copy._entries.get(at) if known else await entry(copy, at, minimum_session)

    patch.setattr(claim_module._Copy, "entry", ahead)


@planted("a claim does not compare", breaks="bookie.ledger, claim_ledger")
def claim_without_compare(patch: pytest.MonkeyPatch) -> None:
    async def lax(metadata: Any, stored: Any, record: Any, compare: Any = (), also: Any = ()) -> Any:
        same_life = Compare(stored.key, Field.CREATE_REVISION, stored.create_revision)
        return (await metadata.txn((same_life, *compare), (Put(stored.key, record.encode()), *also))).results

    patch.setattr(ledger_module, "replace_record", lax)


@planted("bounds are merged although orphans exist", breaks="bookie.record 4", scenario=NARROW)
def bounds_merged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "without_orphans", property(lambda recovery: True))


# --- stores ---


@planted("fences are not persisted", breaks="bookie.entry_store 2")
def fence_not_persisted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal, "save_promise", lambda *_: None)


@planted("a bookie answers adds before they are synced", breaks="bookie.entry_store 1", quick=True)
def answered_before_sync(patch: pytest.MonkeyPatch) -> None:
    add = EntryStore.add

    def early(store: Any, ledger: Any, entry: Any, session: Any, confirmed: Any, value: Any, done: Any) -> None:
        state = store._state(ledger)
        if session < state.promised or store.read_only is not None:
            add(store, ledger, entry, session, confirmed, value, done)
        else:
            add(store, ledger, entry, session, confirmed, value, lambda _entry, _error: None)
            done(entry, None)

    patch.setattr(EntryStore, "add", early)


@planted("adds of fenced sessions are taken", breaks="bookie.entry_store 2")
def fenced_adds_taken(patch: pytest.MonkeyPatch) -> None:
    refusal = EntryStore._refusal

    def lax(store: Any, *args: Any) -> Any:
        error = refusal(store, *args)
        return None if isinstance(error, Fenced) else error

    patch.setattr(EntryStore, "_refusal", lax)


@planted("the orphans of dead sessions are readable", breaks="bookie.entry_store 3", scenario=NARROW)
def orphans_readable(patch: pytest.MonkeyPatch) -> None:
    entry = StoreView.entry
    patch.setattr(StoreView, "entry", lambda view, ledger, at, minimum=ANY_SESSION: entry(view, ledger, at))


@planted(
    "a copy replaces one of a higher session",
    breaks="bookie.entry_store 3",
    scenario=NARROW,
    found_by="tests/bookie/test_entry_store.py::test_a_copy_never_replaces_one_of_a_higher_session",
)
def copy_replaces_higher(patch: pytest.MonkeyPatch) -> None:
    """Takes a claimer that lost under the winner's number and is late."""

    def put(store: Any, transaction: Any, ledger: Any, copies: Any, written_by: Any) -> None:
        for at, value in copies:
            transaction.put(removal.ENTRY_KEY.pack(ledger, at), value, db=store._entries)

    patch.setattr(EntryStore, "_put_copies", put)


@planted("the first chunk of a search for orphans is all of it", breaks="bookie.entry_store 8", scenario=BURSTS)
def search_cut_short(patch: pytest.MonkeyPatch) -> None:
    remove_orphans = removal.remove_orphans

    def first_chunk(transaction: Any, entries: Any, states: Any, ledger: Any, bounds: Any, position: Any) -> Any:
        removed, _ = remove_orphans(transaction, entries, states, ledger, bounds, position)
        first_entry, session = bounds[-1]
        if session > removal.read_bound(transaction, states, ledger)[0]:
            value = removal.ENTRY_KEY.pack(session, first_entry)
            transaction.put(removal.state_key(removal.BOUND, ledger), value, db=states)
        return removed, None

    patch.setattr(removal, "remove_orphans", first_chunk)


@planted("the promises of a deleted ledger go with it", breaks="bookie.entry_store 4")
def promises_go_with_the_ledger(patch: pytest.MonkeyPatch) -> None:
    remove_mark = removal.remove_mark
    patch.setattr(removal, "remove_mark", lambda *args: remove_mark(*args[:4], True))
    patch.setattr(EntryStore, "_is_gone", lambda store, ledger: False)


@planted("digests are not checked", breaks="bookie.entry 1")
def digests_not_checked(patch: pytest.MonkeyPatch) -> None:
    def unchecked(_ledger: Any, _entry: Any, value: memoryview) -> Any:
        session, confirmed, length_bytes, _ = entry_module._HEADER.unpack_from(value)
        return session, confirmed, length_bytes, value[entry_module.HEADER_BYTES :]

    patch.setattr(entry_module, "verify_entry", unchecked)


@planted("shrinking takes the first entry that is kept", breaks="bookie.handle, shrink")
def shrink_too_far(patch: pytest.MonkeyPatch) -> None:
    shrink = EntryStore.shrink

    async def further(store: Any, ledger: Any, end: Any) -> None:
        await shrink(store, ledger, end if end in (0, ENTRY_MAX) else end + 1)

    patch.setattr(EntryStore, "shrink", further)


# --- repair ---


@planted(
    "what a bookie has of a fragment that does not name it is taken for its own",
    breaks="bookie.repair 5",
    scenario=ISOLATED,
)
def left_there_counts(patch: pytest.MonkeyPatch) -> None:
    copy = LedgerRepair._copy

    async def trusting(repair: Any, fragment: Any, last: Any, index: Any, target: Any) -> None:
        await copy(repair, fragment._replace(bookies=(target,)), last, index, target)

    patch.setattr(LedgerRepair, "_copy", trusting)


@planted("what a bookie has beside its write sets is read", breaks="bookie.repair 5, bookie.copies", scenario=ISOLATED)
def beside_write_sets_read(patch: pytest.MonkeyPatch) -> None:
    ask = copies_module._ask_range

    async def everything(
        bookies: Any, name: Any, arguments: Any, quorum: Quorum, found: Any, answered: Any, index: Any
    ) -> None:
        every = quorum._replace(write_quorum=quorum.ensemble_size)
        await ask(bookies, name, arguments, every, found, answered, index)

    patch.setattr(copies_module, "_ask_range", everything)


# --- writers ---


@planted("an ensemble change does not compare", breaks="bookie.held_record 1")
def change_without_compare(patch: pytest.MonkeyPatch) -> None:
    async def change(handle: Any, first_entry: Any, bookies: Any) -> None:
        async with handle._changing:
            while True:
                changed = records.change_ensemble(handle.record, first_entry, bookies)
                try:
                    result = await handle._metadata.txn((), (Put(ledger_key(handle.name), changed.encode()),))
                except MetadataUnavailable:
                    await handle._bookies.clock.sleep(0.5)
                else:
                    handle._refresh(result.results[0])
                    return

    patch.setattr(Ledger, "change_ensemble", change)


@planted("what replaced bookies answered counts", breaks="bookie.writer 4", scenario=SPARE)
def lost_answers_counted(patch: pytest.MonkeyPatch) -> None:
    end_change = LedgerWriter.end_change

    def counting(writer: Any, replaced: Any) -> Any:
        for bookie in replaced:
            writer._lost.pop(bookie, None)
        return end_change(writer, ())

    patch.setattr(LedgerWriter, "end_change", counting)


@planted("entries are confirmed during an ensemble change", breaks="bookie.writer 4", scenario=SPARE)
def confirmed_during_change(patch: pytest.MonkeyPatch) -> None:
    stored = LedgerWriter.stored

    def confirming(writer: Any, bookie: int, entry: Any) -> Any:
        changing, writer._changing = writer._changing, False
        try:
            return stored(writer, bookie, entry)
        finally:
            writer._changing = changing

    patch.setattr(LedgerWriter, "stored", confirming)


@planted("one copy less than the ack quorum is acknowledged", breaks="bookie.writer 1")
def ack_quorum_short(patch: pytest.MonkeyPatch) -> None:
    init = LedgerWriter.__init__

    def short(writer: Any, quorum: Quorum, confirmed: Any) -> None:
        init(writer, quorum._replace(ack_quorum=max(1, quorum.ack_quorum - 1)), confirmed)

    patch.setattr(LedgerWriter, "__init__", short)


# --- readers ---


@planted(
    "a reader believes the last add confirmed of a session it does not know",
    breaks="bookie.entry_store, Confirmed",
    found_by="tests/bookie/test_cluster.py::test_a_reader_with_an_old_record_never_takes_an_orphan_for_the_entry",
)
def later_session_believed(patch: pytest.MonkeyPatch) -> None:
    """A storm takes some 500 seeds to find it."""

    async def heard(handle: Any, confirmed: Any) -> None:
        if handle._appender is None and not handle.record.sealed:
            handle.last_add_confirmed = max(handle.last_add_confirmed, confirmed.entry)

    patch.setattr(Ledger, "_heard", heard)


@planted("a reader takes what one bookie has for confirmed", breaks="bookie.handle 3", scenario=NARROW)
def unconfirmed_read(patch: pytest.MonkeyPatch) -> None:
    def ahead(store: Any, ledger: Any) -> Any:
        confirmed = told(store, ledger)
        with store.view() as view:
            end = view.end(ledger)[0]
        return confirmed._replace(entry=max(confirmed.entry, end)) if end != NO_ENTRY else confirmed

    told = EntryStore.last_add_confirmed
    patch.setattr(EntryStore, "last_add_confirmed", ahead)


# --- metadata ---


@planted("a watch loses an event when it reconnects", breaks="metadata.remote 2")
def watch_loses_an_event(patch: pytest.MonkeyPatch) -> None:
    lose = _Watcher._lose_stream

    async def losing(watcher: Any) -> None:
        watcher._position = Revision(watcher._position + 1)
        await lose(watcher)

    patch.setattr(_Watcher, "_lose_stream", losing)


@planted("a bookie keeps the lease that has expired", breaks="metadata.presence")
def lease_kept(patch: pytest.MonkeyPatch) -> None:
    keep = Presence._keep

    async def keeping(presence: Any, lease: Any) -> None:
        try:
            await keep(presence, lease)
        except LeaseNotFound:
            await presence._clock.sleep(1.0)

    patch.setattr(Presence, "_keep", keeping)
