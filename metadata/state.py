"""The metadata state machine: keys, revisions, leases and history, with neither clock nor disk.

Requests are judged by a `Draft` over a `State`; the state stands still until its owner calls `adopt`, once the draft's
`changes` are durable. Dropping the draft undoes everything. `State.apply` does both, for those without a disk.

1. The revision grows by one per txn whose branch wrote something, and per lease ended with keys; by nothing else.
2. A request is judged against everything before it in its draft, and is applied whole or not at all.
3. Revision r has one batch with one event per key it wrote; `key.mod_revision == r` exactly for the keys put in it.
4. A key's version is 1 when it is created and grows by one per put; create_revision is the revision of its creation.
5. Batches of (compacted, revision] are kept without a gap, never more than `history_revisions`, nor more events in them
   than `history_events`, but for the newest one's; older is `Compacted`.
6. A lease whose deadline has come is gone, with its keys, before a request of that time is judged; never earlier.
7. A lease id is never granted twice. A put without a lease detaches its key.
8. Of the drafts begun between two adoptions at most one is adopted.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnomon.metadata.client import (
    Compacted,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Field,
    Get,
    InvalidRequest,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    MetadataError,
    Operation,
    Put,
    RangeResult,
    Revision,
    TxnResult,
    WatchBatch,
)
from gnomon.metadata.request import Compact, Grant, KeepAlive, Reply, Request, Revoke, Tick, Txn, refusal

HISTORY_REVISIONS = 10_000
HISTORY_EVENTS = 100_000
"""At some 400 bytes of memory each; one flush of subscriptions' positions can make thousands of them a second."""

_NO_REVISION = Revision(0)
_FIRST_LEASE = LeaseId(1)

# From here on one pass over the list of keys is cheaper than moving its tail for each (measured at 100,000 keys).
_KEY_MOVES_MAX = 300


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease and the monotonic second at which it ends."""

    ttl_seconds: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What a draft changes durably; all of it belongs into one commit."""

    revision: Revision
    compacted: Revision
    next_lease: LeaseId
    puts: tuple[KeyValue, ...]
    deletes: tuple[str, ...]
    batches: tuple[WatchBatch, ...]
    dropped: range
    """Revisions whose batches leave the history."""
    granted: tuple[tuple[LeaseId, float], ...]
    """Lease and its ttl in seconds."""
    ended: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything of a state that outlives a restart; deadlines start anew."""

    revision: Revision = _NO_REVISION
    compacted: Revision = _NO_REVISION
    next_lease: LeaseId = _FIRST_LEASE
    keys: Sequence[KeyValue] = ()
    batches: Sequence[WatchBatch] = ()
    leases: Sequence[tuple[LeaseId, float]] = ()


class State:
    """The keys as of the last adopted draft, and the history that led there."""

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        now: float = 0.0,
        history_revisions: int = HISTORY_REVISIONS,
        history_events: int = HISTORY_EVENTS,
    ) -> None:
        """Continues from a snapshot, or begins empty at revision 0.

        Args:
            now: monotonic seconds from which the leases of the snapshot run their full ttl again.
            history_revisions: how many revisions a watch can go back.
            history_events: and how many events.
        """
        assert history_revisions > 0, "a history of no revisions could serve no watch"
        snapshot = snapshot or Snapshot()
        self.history_revisions = history_revisions
        self.history_events = history_events
        self.adoptions = 0
        self.revision = snapshot.revision
        self.compacted = snapshot.compacted
        self.next_lease = snapshot.next_lease
        self.leases = {lease: Lease(ttl, now + ttl) for lease, ttl in snapshot.leases}
        self._values = {item.key: item for item in snapshot.keys}
        self._keys = sorted(self._values)
        self._lease_keys: dict[LeaseId, dict[str, None]] = {lease: {} for lease in self.leases}
        for item in snapshot.keys:
            if item.lease is not None:
                self._lease_keys[item.lease][item.key] = None
        self._history = {batch.revision: batch for batch in snapshot.batches}
        assert list(self._history) == list(range(self.compacted + 1, self.revision + 1)), "invariant 5: history gap"
        self.next_deadline = self._earliest_deadline()
        self.events = sum(len(batch.events) for batch in self._history.values())
        """Those in the history."""
        fresh = Draft(self)
        fresh.bound_history()
        self.events = fresh.events
        self._trim(fresh.compacted)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    def get(self, key: str) -> KeyValue | None:
        """One key."""
        return self._values.get(key)

    def keys_under(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""
        first = bisect_left(self._keys, prefix)
        end = bisect_left(self._keys, True, first, key=lambda key: not key.startswith(prefix))
        return self._keys[first:end]

    def range(self, prefix: str) -> RangeResult:
        """`Metadata.range`."""
        values = self._values
        return RangeResult(self.revision, tuple([values[key] for key in self.keys_under(prefix)]))

    def next_batch(self, prefix: str, from_revision: Revision) -> tuple[WatchBatch | None, Revision]:
        """The first batch at or after `from_revision` with events below `prefix`, and where to look next.

        Raises:
            Compacted: `from_revision` is older than the history kept.
        """
        at = max(from_revision, 1)  # nothing happened in revision 0
        if at <= self.compacted:
            raise Compacted(from_revision, Revision(self.compacted + 1))
        while at <= self.revision:
            batch = self._history[Revision(at)].below(prefix)
            at += 1
            if batch.events:
                return batch, Revision(at)
        return None, Revision(at)

    def batch(self, revision: Revision) -> WatchBatch:
        """What happened in a revision that the history has."""
        return self._history[revision]

    def lease_keys(self, lease: LeaseId) -> Iterable[str]:
        """The keys attached to a lease; none where it is gone."""
        return self._lease_keys.get(lease, {})

    def adopt(self, draft: Draft) -> None:
        """Makes a draft of this very state the state; the draft must not be used again."""
        assert draft.base is self, "invariant 8: the draft is of another state"
        assert draft.base_adoptions == self.adoptions, "invariant 8: another draft was adopted since"
        self.adoptions += 1
        self.revision, self.next_lease = draft.revision, draft.next_lease
        for lease_id, lease in draft.leases.items():
            if lease is None:
                self.leases.pop(lease_id, None)
            else:
                self.leases[lease_id] = lease
                self._lease_keys.setdefault(lease_id, {})
        self._adopt_keys(draft.keys)
        for lease_id, lease in draft.leases.items():
            if lease is None:
                assert not self._lease_keys.pop(lease_id, None), "invariant 6: a key outlived its lease"
        self._history.update((batch.revision, batch) for batch in draft.batches)
        self.events = draft.events
        self._trim(draft.compacted)
        if draft.leases:
            self.next_deadline = self._earliest_deadline()

    def apply(self, request: Request, now: float) -> tuple[Reply, Changes | None]:
        """Judges and adopts one request at monotonic second `now`; changes are None where nothing durable changed."""
        draft = Draft(self)
        reply = draft.apply(request, now)
        changes = draft.changes()
        self.adopt(draft)
        return reply, changes

    def _adopt_keys(self, written: Mapping[str, KeyValue | None]) -> None:
        values = self._values
        appeared: list[str] = []
        vanished: list[str] = []
        for key, after in written.items():
            before = values.pop(key, None)
            if before is not None and before.lease is not None:
                del self._lease_keys[before.lease][key]
            if after is None:
                if before is not None:
                    vanished.append(key)
                continue
            values[key] = after
            if after.lease is not None:
                self._lease_keys[after.lease][key] = None
            if before is None:
                appeared.append(key)
        if len(appeared) + len(vanished) > _KEY_MOVES_MAX:
            self._keys = [key for key in self._keys if key in values]
            self._keys += appeared
            self._keys.sort()
            return
        for key in vanished:
            del self._keys[bisect_left(self._keys, key)]
        for key in appeared:
            insort(self._keys, key)

    def _trim(self, compacted: Revision) -> None:
        for revision in range(self.compacted + 1, compacted + 1):
            del self._history[Revision(revision)]
        self.compacted = max(self.compacted, compacted)

    def _earliest_deadline(self) -> float:
        return min((lease.deadline for lease in self.leases.values()), default=math.inf)


class Draft:
    """Requests judged on top of a state that does not move meanwhile."""

    def __init__(self, base: State) -> None:
        self.base = base
        self.base_adoptions = base.adoptions
        self.revision = base.revision
        self.next_lease = base.next_lease
        self.keys: dict[str, KeyValue | None] = {}
        """Every key written, None where it is deleted."""
        self.leases: dict[LeaseId, Lease | None] = {}
        """Every lease granted, renewed or (None) ended."""
        self.batches: list[WatchBatch] = []
        self.events = base.events
        """Those in the history, as it would be."""
        self._compacted = base.compacted
        self._oldest = Revision(base.compacted + 1)
        self._no_deadline_before = base.next_deadline

    @property
    def compacted(self) -> Revision:
        """The newest revision whose batch is not kept."""
        return Revision(max(self._compacted, self.revision - self.base.history_revisions))

    def get(self, key: str) -> KeyValue | None:
        """One key, as this draft has it."""
        return self.keys[key] if key in self.keys else self.base.get(key)

    def apply(self, request: Request, now: float) -> Reply:
        """Judges one request at monotonic second `now`; a refused one changes nothing of its own."""
        self._end_due_leases(now)
        match request:
            case Txn():
                return self._txn(request)
            case Grant(ttl_seconds):
                return self._grant(ttl_seconds, now)
            case KeepAlive(lease_id):
                lease = self._lease(lease_id)
                if lease is None:
                    return _lease_not_found(lease_id)
                self.leases[lease_id] = Lease(lease.ttl_seconds, now + lease.ttl_seconds)
            case Revoke(lease_id):
                if self._lease(lease_id) is not None:
                    self._end_lease(lease_id)
            case Compact(revision):
                if revision > self.revision:
                    return InvalidRequest(
                        f"revision {revision} has not happened yet, the store is at {self.revision}: compact up to that"
                    )
                self._compacted = max(self._compacted, Revision(revision - 1))
                self.bound_history()
            case Tick():
                pass
        return None

    def changes(self) -> Changes | None:
        """What has to be made durable before this draft may be adopted; None where nothing has."""
        base = self.base
        granted, ended = [], []
        for lease_id, lease in self.leases.items():
            if lease is None and lease_id in base.leases:
                ended.append(lease_id)
            elif lease is not None and lease_id not in base.leases:
                granted.append((lease_id, lease.ttl_seconds))
        moved = (self.revision, self.compacted, self.next_lease) != (base.revision, base.compacted, base.next_lease)
        if not moved and not ended:
            return None
        return Changes(
            revision=self.revision,
            compacted=self.compacted,
            next_lease=self.next_lease,
            puts=tuple([value for value in self.keys.values() if value is not None]),
            deletes=tuple([key for key, value in self.keys.items() if value is None]),
            batches=tuple([batch for batch in self.batches if batch.revision > self.compacted]),
            dropped=range(base.compacted + 1, min(self.compacted, base.revision) + 1),
            granted=tuple(granted),
            ended=tuple(ended),
        )

    def _txn(self, request: Txn) -> TxnResult | MetadataError:
        refused = refusal(request)
        if refused is not None:
            return InvalidRequest(f"the transaction is refused: {refused}")
        succeeded = all(self._holds(compare) for compare in request.compare)
        branch = request.then if succeeded else request.otherwise
        for operation in branch:
            lease = operation.lease if isinstance(operation, Put) else None
            if lease is not None and self._lease(lease) is None:
                return _lease_not_found(lease)
        written: dict[str, KeyValue | None] = {}
        results = tuple([self._operate(operation, written) for operation in branch])
        self._record(written)
        return TxnResult(succeeded, self.revision, results)

    def _holds(self, compare: Compare) -> bool:
        value = self.get(compare.key)
        if value is None:
            return compare.value == (b"" if compare.field is Field.VALUE else 0)
        return bool(getattr(value, compare.field.value) == compare.value)

    def _operate(self, operation: Operation, written: dict[str, KeyValue | None]) -> KeyValue | int | None:
        """Carries out one operation of a branch whose earlier ones wrote `written`."""
        match operation:
            case Get(key):
                return written[key] if key in written else self.get(key)
            case Put(key, value, lease):
                revision = Revision(self.revision + 1)
                before = self.get(key)
                if before is None:
                    after = KeyValue(key, value, revision, revision, 1, lease)
                else:
                    after = KeyValue(key, value, before.create_revision, revision, before.version + 1, lease)
                written[key] = after
                return after
            case Delete(key):
                doomed = [key]
            case DeletePrefix(prefix):
                fresh = [key for key in self.keys if key.startswith(prefix)]
                doomed = sorted({*self.base.keys_under(prefix), *fresh})
        doomed = [key for key in doomed if key not in written and self.get(key) is not None]
        written.update(dict.fromkeys(doomed))
        return len(doomed)

    def _record(self, written: Mapping[str, KeyValue | None]) -> None:
        """Makes the writes of one transaction or lease the next revision."""
        if not written:
            return
        self.revision = Revision(self.revision + 1)
        self.keys.update(written)
        events = tuple([Event(key, current) for key, current in written.items()])
        self.batches.append(WatchBatch(self.revision, events))
        self.events += len(events)
        self.bound_history()

    def bound_history(self) -> None:
        """Forgets the oldest batches where there are too many of them or of their events (invariant 5)."""
        base, events_max = self.base, self.base.history_events
        while self._oldest <= self.compacted or (self.events > events_max and self._oldest < self.revision):
            at = self._oldest
            batch = base.batch(at) if at <= base.revision else self.batches[at - base.revision - 1]
            self.events -= len(batch.events)
            self._oldest = Revision(at + 1)
        self._compacted = max(self._compacted, Revision(self._oldest - 1))

    def _lease(self, lease_id: LeaseId) -> Lease | None:
        return self.leases[lease_id] if lease_id in self.leases else self.base.leases.get(lease_id)

    def _grant(self, ttl_seconds: float, now: float) -> LeaseId | InvalidRequest:
        if not (math.isfinite(ttl_seconds) and ttl_seconds > 0):
            return InvalidRequest(f"a lease of {ttl_seconds} seconds is refused: ask for a positive, finite time")
        lease_id = self.next_lease
        self.next_lease = LeaseId(lease_id + 1)
        self.leases[lease_id] = Lease(ttl_seconds, now + ttl_seconds)
        self._no_deadline_before = min(self._no_deadline_before, now + ttl_seconds)
        return lease_id

    def _end_due_leases(self, now: float) -> None:
        if now < self._no_deadline_before:
            return
        alive = {
            lease_id: lease for lease_id, lease in {**self.base.leases, **self.leases}.items() if lease is not None
        }
        for lease_id in sorted(alive):
            if alive[lease_id].deadline <= now:
                self._end_lease(lease_id)
                del alive[lease_id]
        self._no_deadline_before = min((lease.deadline for lease in alive.values()), default=math.inf)

    def _end_lease(self, lease_id: LeaseId) -> None:
        attached = [key for key, value in self.keys.items() if value is not None and value.lease == lease_id]
        attached += [key for key in self.base.lease_keys(lease_id) if key not in self.keys]
        self.leases[lease_id] = None
        self._record(dict.fromkeys(sorted(attached)))


def _lease_not_found(lease_id: LeaseId) -> LeaseNotFound:
    return LeaseNotFound(f"lease {lease_id} expired or was revoked, and its keys went with it: ask for a new one")
