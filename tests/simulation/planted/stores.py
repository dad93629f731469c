"""Bugs below the broker: metadata and bookie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from gnomon.bookie.ledgers import catalog as ledger
from gnomon.bookie.ledgers.appender import Appender
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.local_view import LocalView
from gnomon.bookie.ledgers.recovery import Recovery
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.add_queue import AddQueue
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.broker.partition.log import PartitionLog
from gnomon.metadata.draft import Draft
from gnomon.metadata.embedded import EmbeddedMetadata, _writing, records
from gnomon.metadata.request import Txn
from gnomon.metadata.state import State
from gnomon.runtime.world import DiskFull, WorldError

from planted.planted_bug import planted


@planted("an add is answered before its commit", breaks="bookie.entry_store 1", quick=True)
def add_answered_early(patch: pytest.MonkeyPatch) -> None:
    add = EntryStore.add

    def answered_early(store: Any, name: Any, entry: Any, session: Any, confirmed: Any, value: Any, done: Any) -> None:
        add(store, name, entry, session, confirmed, value, lambda _entry, _error: None)
        done(entry, None)
        store.adds._tell_group()

    patch.setattr(EntryStore, "add", answered_early)


@planted("adds that meet a full disk are never answered", breaks="bookie.add_queue 1")
def adds_forgotten(patch: pytest.MonkeyPatch) -> None:
    add = EntryStore.add

    def unanswered(store: Any, name: Any, entry: Any, session: Any, confirmed: Any, value: Any, done: Any) -> None:
        def unless_lost(at: Any, error: Any) -> None:
            if not isinstance(error, WorldError):
                done(at, error)

        add(store, name, entry, session, confirmed, value, unless_lost)

    patch.setattr(EntryStore, "add", unanswered)
    patch.setattr(AddQueue, "read_only", property(lambda queue: None, lambda queue, reason: None), raising=False)


@planted("a full store never takes adds again", breaks="bookie.add_queue 3")
def read_only_for_ever(patch: pytest.MonkeyPatch) -> None:
    reasons: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    still_full = property(reasons.get, lambda queue, reason: reasons.update({queue: reason or reasons.get(queue)}))
    patch.setattr("gnomon.bookie.storage.add_queue.RETRY_SECONDS", 1e9)
    patch.setattr(AddQueue, "read_only", still_full, raising=False)


@planted("recovery stops at the last add confirmed", breaks="bookie.recovery 4", quick=True)
def tail_lost(patch: pytest.MonkeyPatch) -> None:
    found = Recovery.found

    def without_tail(recovery: Any, stored: Any) -> None:
        found(recovery, stored)
        recovery.tail.clear()

    patch.setattr(Recovery, "found", without_tail)


@planted("a claim continues one entry too far", breaks="bookie.recovery 4")
def claimed_too_far(patch: pytest.MonkeyPatch) -> None:
    recover = ledger.recover

    async def too_far(*arguments: Any) -> Any:
        recovered = await recover(*arguments)
        recovered.last_entry += 1
        return recovered

    patch.setattr(ledger, "recover", too_far)


@planted("one entry too many is removed", breaks="bookie.removal 1")
def one_entry_too_many(patch: pytest.MonkeyPatch) -> None:
    mark = removal.mark_range
    patch.setattr(
        removal, "mark_range", lambda txn, states, name, end: mark(txn, states, name, min(end + 1, removal.ENTRY_MAX))
    )


@planted("garbage is judged by an old list of ledgers", breaks="bookie.garbage 1")
def garbage_by_old_list(patch: pytest.MonkeyPatch) -> None:
    collect = GarbageCollector.collect

    async def by_old_list(collector: Any) -> Any:
        metadata = collector._metadata
        old = await metadata.range(ledger.LEDGERS)
        await collector._clock.sleep(0.5)

        class Old:
            async def range(self, prefix: str) -> Any:
                return old

        collector._metadata = Old()
        try:
            return await collect(collector)
        finally:
            collector._metadata = metadata

    patch.setattr(GarbageCollector, "collect", by_old_list)


@planted("readers see what is not durable yet", breaks="bookie.handle 3, broker.partition.log 3")
def undurable_read(patch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def ahead(log: Any, view: Any, now_ms: int, entry: int, terms: Any = None) -> Any:
        verdict = append(log, view, now_ms, entry, terms)
        log.high_watermark = log.next_offset
        return verdict

    def payload(view: Any, entry: Any) -> Any:
        return view._view.get(view._ledger.id, entry, view._minimum if entry >= view._floor else 0)

    told: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def last(ledger: Any) -> Any:
        return told[ledger] if ledger._appender is None else ledger.next_entry - 1

    patch.setattr(PartitionLog, "append", ahead)
    patch.setattr(PartitionLog, "durable", lambda log, next_offset: None)
    believed = property(last, lambda ledger, entry: told.update({ledger: entry}))
    patch.setattr(Ledger, "last_add_confirmed", believed, raising=False)
    patch.setattr(LocalView, "payload", payload)


@planted("a ledger that failed continues with the adds after the lost one", breaks="bookie.appender 2")
def failure_ignored(patch: pytest.MonkeyPatch) -> None:
    heard = Appender.heard
    patch.setattr(Appender, "heard", lambda appender, index, entry, _error: heard(appender, index, entry, None))


@planted("a metadata transaction is answered before it is durable", breaks="metadata.embedded 3", quick=True)
def txn_answered_early(patch: pytest.MonkeyPatch) -> None:
    init, changes = EmbeddedMetadata.__init__, Draft.changes
    environments: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def known(metadata: Any, world: Any, environment: Any, state: Any) -> None:
        init(metadata, world, environment, state)
        environments[state] = environment

    def written_meanwhile(draft: Any) -> Any:
        environment, found = environments.get(draft.base), changes(draft)
        if environment is None or found is None:
            return found
        environment.submit(_writing(environment, records.writes(found)), lambda _, error: None)
        return None

    patch.setattr(EmbeddedMetadata, "__init__", known)
    patch.setattr(Draft, "changes", written_meanwhile)


@planted("a commit of metadata that did not fit stays in memory", breaks="metadata.embedded 4")
def full_draft_kept(patch: pytest.MonkeyPatch) -> None:
    committed = EmbeddedMetadata.committed

    def keeping(metadata: Any, draft: Any, judged: Any, result: Any, error: Any) -> None:
        if isinstance(error, DiskFull):
            metadata._state.adopt(draft, metadata._clock.monotonic())
            metadata._publish()
        committed(metadata, draft, judged, result, error)

    patch.setattr(EmbeddedMetadata, "committed", keeping)


@planted("a watch loses the event of a revision that comes with another one", breaks="metadata.client, watch")
def watch_event_lost(patch: pytest.MonkeyPatch) -> None:
    next_batch = State.next_batch

    def losing(state: Any, prefix: str, from_revision: Any) -> Any:
        batch, after = next_batch(state, prefix, from_revision)
        later, after_later = next_batch(state, prefix, after)
        return (later, after_later) if batch is not None and later is not None else (batch, after)

    patch.setattr(State, "next_batch", losing)


@planted(
    "a transaction is applied although a comparison failed",
    breaks="metadata.state 2",
    found_by="tests/metadata/test_conformance.py::test_all_comparisons_must_hold[embedded, simulated]",
)
def compare_ignored(patch: pytest.MonkeyPatch) -> None:
    """No storm of one broker finds it: the broker has no competitor, and its own requests wait for each other."""
    apply = Draft.apply

    def uncompared(draft: Any, request: Any, now: float) -> Any:
        return apply(draft, replace(request, compare=()) if isinstance(request, Txn) else request, now)

    patch.setattr(Draft, "apply", uncompared)
