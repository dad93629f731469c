"""Bugs in replicated ledgers; the sweep over ledgers looks for them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import trio

from gnomon.bookie import entry as entry_module
from gnomon.bookie import errors
from gnomon.bookie import record as records
from gnomon.bookie.bookie import FenceResult
from gnomon.bookie.errors import LedgerSealed
from gnomon.bookie.ids import ANY_SESSION, ENTRY_MAX, NO_ENTRY
from gnomon.bookie.ledgers import catalog as ledger_module
from gnomon.bookie.ledgers import copies as copies_module
from gnomon.bookie.ledgers import followed_ledger
from gnomon.bookie.ledgers.claim import ReadAhead, RecoveryDriver
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.recovery import Recovery
from gnomon.bookie.ledgers.writer import LedgerWriter
from gnomon.bookie.record import Quorum, ledger_key
from gnomon.bookie.remote import RemoteBookie
from gnomon.bookie.repair import repair
from gnomon.bookie.storage import entry_store, removal, service
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.store_view import StoreView
from gnomon.bookie.storage.stored_ledger import StoredLedger
from gnomon.bookie.storage.stored_ledgers import StoredLedgers
from gnomon.metadata.client import Compare, KeyField, LeaseNotFound, MetadataUnavailable, Put, Revision
from gnomon.metadata.presence import Presence
from gnomon.metadata.remote import RemoteWatcher
from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import Fault, FaultMix
from gnomon.testing.simulation.network.simulated_network import NetworkConditions
from gnomon.testing.storms.ledgers.ledger_clients import Habits
from gnomon.testing.storms.ledgers.ledger_scenario import LedgerScenario

from planted.planted_bug import ScenarioBugs

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
"""One ledger that is claimed repeatedly on three bookies, while some clients cannot reach some bookies."""
BURSTS = replace(NARROW, habits=Habits(40, 10, 0.05, claim=0.3, linger=0.5, shrink=0.0, seal=0.0, delete=0.0, read=0.2))
"""As NARROW, with more orphans at a time."""
GIVES_UP = replace(
    SWEEP,
    isolated=0.0,
    habits=Habits(5, 10, 0.02, claim=0.1, linger=0.5, shrink=0.0, seal=0.05, delete=0.02, read=0.0),
)
"""Ledgers that are sealed, closed and deleted all the time."""
ISOLATED = replace(SWEEP, isolated=1.0)
"""Bookies come back after records no longer refer to their entries."""
LEDGER_BUGS = ScenarioBugs(SWEEP)
planted = LEDGER_BUGS.planted
CHANGES = (
    "tests/bookie/test_writer.py::"
    "test_no_entry_is_confirmed_during_an_ensemble_change_and_replaced_bookies_do_not_count"
)


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


@planted("one bookie is fenced, the others' last add confirmed is trusted without a fence", breaks="bookie.recovery 1")
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

    patch.setattr(RecoveryDriver, "write_tail", nothing)


@planted(
    "entries read ahead count beyond their fragment",
    breaks="bookie.recovery, bookie.record 2",
    found_by="tests/bookie/test_claim.py::"
    "test_a_copy_of_an_older_session_that_was_read_ahead_is_an_orphan_in_a_later_fragment",
)
def read_ahead_beyond(patch: pytest.MonkeyPatch) -> None:
    entry = ReadAhead.entry

    async def ahead(copy: Any, at: Any, minimum_session: Any) -> Any:
        known = copy._read is not None and copy._first <= at < copy._read.scanned_to
        return copy._entries.get(at) if known else await entry(copy, at, minimum_session)

    patch.setattr(ReadAhead, "entry", ahead)


@planted("a claim does not compare", breaks="bookie.ledger, claim_ledger")
def claim_without_compare(patch: pytest.MonkeyPatch) -> None:
    async def lax(metadata: Any, stored: Any, record: Any, compare: Any = (), also: Any = ()) -> Any:
        same_life = Compare(stored.key, KeyField.CREATE_REVISION, stored.create_revision)
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
        if session < store.promised(ledger) or store.read_only is not None:
            add(store, ledger, entry, session, confirmed, value, done)
        else:
            add(store, ledger, entry, session, confirmed, value, lambda _entry, _error: None)
            done(entry, None)

    patch.setattr(EntryStore, "add", early)


@planted("adds of fenced sessions are accepted", breaks="bookie.entry_store 2")
def fenced_adds_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredLedger, "fenced", lambda stored, ledger, session: None)


@planted("a refused add counts as stored when the other adds of its call are", breaks="bookie.remote", scenario=BURSTS)
def refusals_of_a_call_lost(patch: pytest.MonkeyPatch) -> None:
    added = service.AddsAnswer.added
    patch.setattr(service.AddsAnswer, "added", lambda answer, index, entry, error: added(answer, index, entry, None))


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
    """Needs a late claimer that lost against another one with the same session number."""

    def put(transaction: Any, entries: Any, ledger: Any, copies: Any, written_by: Any) -> None:
        for at, value in copies:
            transaction.put(removal.ENTRY_KEY.pack(ledger, at), value, db=entries)

    patch.setattr(entry_store, "put_copies", put)


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


@planted("the promises of a deleted ledger are deleted", breaks="bookie.entry_store 4")
def promises_go_with_the_ledger(patch: pytest.MonkeyPatch) -> None:
    remove_mark = removal.remove_mark
    patch.setattr(removal, "remove_mark", lambda *args: remove_mark(*args[:4], True))
    patch.setattr(StoredLedgers, "owned", lambda stored, ledgers, as_of: None)


@planted("digests are not checked", breaks="bookie.entry 1")
def digests_not_checked(patch: pytest.MonkeyPatch) -> None:
    def unchecked(_ledger: Any, _entry: Any, value: memoryview) -> Any:
        session, confirmed, length_bytes, _ = entry_module._HEADER.unpack_from(value)
        return session, confirmed, length_bytes, value[entry_module.HEADER_BYTES :]

    patch.setattr(entry_module, "verify_entry", unchecked)


@planted("shrinking removes the first entry that is kept", breaks="bookie.handle, shrink")
def shrink_too_far(patch: pytest.MonkeyPatch) -> None:
    shrink = EntryStore.shrink

    async def further(store: Any, ledger: Any, end: Any) -> None:
        await shrink(store, ledger, end if end in (0, ENTRY_MAX) else end + 1)

    patch.setattr(EntryStore, "shrink", further)


# --- repair ---


@planted(
    "a bookie's entries of a fragment that does not name it count as its own",
    breaks="bookie.repair 5",
    scenario=ISOLATED,
)
def left_there_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "counts", lambda fragment, bookie: True)


@planted(
    "a bookie's entries outside its write sets are read", breaks="bookie.repair 5, bookie.copies", scenario=ISOLATED
)
def beside_write_sets_read(patch: pytest.MonkeyPatch) -> None:
    ask = copies_module.ask_range

    async def everything(
        bookies: Any, name: Any, arguments: Any, quorum: Quorum, found: Any, answered: Any, index: Any
    ) -> None:
        every = quorum._replace(write_quorum=quorum.ensemble_size)
        await ask(bookies, name, arguments, every, found, answered, index)

    patch.setattr(copies_module, "ask_range", everything)


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


@planted("answers of replaced bookies count", breaks="bookie.writer 4", found_by=CHANGES)
def lost_answers_counted(patch: pytest.MonkeyPatch) -> None:
    end_change = LedgerWriter.end_change

    def counting(writer: Any, replaced: Any) -> Any:
        for bookie in replaced:
            writer._lost.pop(bookie, None)
        return end_change(writer, ())

    patch.setattr(LedgerWriter, "end_change", counting)


@planted("entries are confirmed during an ensemble change", breaks="bookie.writer 4", found_by=CHANGES)
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


# --- cancelled calls, deleted ledgers ---


@planted("a seal that is cancelled leaves a handle that says it is sealed", breaks="bookie.handle 3", scenario=GIVES_UP)
def seal_given_up(patch: pytest.MonkeyPatch) -> None:
    seal = Ledger.seal

    async def sealing(ledger: Any, properties: Any = None, *, compare: Any = (), also: Any = ()) -> None:
        try:
            await seal(ledger, properties, compare=compare, also=also)
        except trio.Cancelled:
            ledger._failure = LedgerSealed(f"ledger {ledger.name!r} is sealed")
            raise

    patch.setattr(Ledger, "seal", sealing)


@planted("a close that is cancelled leaves the handle open", breaks="bookie.handle, close", scenario=GIVES_UP)
def close_given_up(patch: pytest.MonkeyPatch) -> None:
    close = Ledger.close

    async def closing(ledger: Any) -> None:
        await ledger.drained()
        await close(ledger)

    patch.setattr(Ledger, "close", closing)


@planted("a deletion is reported as the claim of a session", breaks="bookie.errors, Fenced")
def deleted_as_claimed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(errors, "SESSION_MAX", None)


# --- readers ---


@planted(
    "a reader trusts the last add confirmed of a session that it does not know",
    breaks="bookie.entry_store, Confirmed",
    found_by="tests/bookie/test_cluster.py::test_a_reader_with_an_outdated_record_never_returns_an_orphan",
)
def later_session_believed(patch: pytest.MonkeyPatch) -> None:
    """A storm takes some 500 seeds to find it."""

    ask_confirmed, wait_for_news = followed_ledger.ask_confirmed, followed_ledger.wait_for_news

    def of_any_session(heard: Any) -> Any:
        return [confirmed._replace(session=ANY_SESSION) for confirmed in heard]

    async def asked(bookies: Any, ledger: Any, names: Any, seconds: float = math.inf) -> Any:
        return of_any_session(await ask_confirmed(bookies, ledger, names, seconds))

    async def waited(bookies: Any, ledger: Any, names: Any, entry: Any, record_changed: Any) -> Any:
        heard, changed = await wait_for_news(bookies, ledger, names, entry, record_changed)
        return of_any_session(heard), changed

    patch.setattr(followed_ledger, "ask_confirmed", asked)
    patch.setattr(followed_ledger, "wait_for_news", waited)


@planted("a reader takes an entry of one bookie for confirmed", breaks="bookie.followed_ledger 1", scenario=NARROW)
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
    drop_stream = RemoteWatcher.drop_stream

    async def losing(watcher: Any) -> None:
        watcher._position = Revision(watcher._position + 1)
        await drop_stream(watcher)

    patch.setattr(RemoteWatcher, "drop_stream", losing)


@planted("a bookie keeps the lease that has expired", breaks="metadata.presence")
def lease_kept(patch: pytest.MonkeyPatch) -> None:
    keep_alive = Presence.keep_alive

    async def keeping(presence: Any, lease: Any) -> None:
        try:
            await keep_alive(presence, lease)
        except LeaseNotFound:
            await presence._clock.sleep(1.0)

    patch.setattr(Presence, "keep_alive", keeping)
