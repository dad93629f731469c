"""A draft: the outcomes and changes of requests to a metadata state, before the changes are durable. Pure.

`state.py` lists the invariants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    InvalidRequest,
    KeyField,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    MetadataError,
    Operation,
    Put,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.request import Compact, Grant, KeepAlive, Reply, Request, Revoke, Tick, Txn, refusal

EVENT_BYTES = 320
"""Memory that an event takes without its value."""


def bytes_of(batch: WatchBatch) -> int:
    """About the memory that the events of a revision take."""
    values = sum(len(event.current.value) for event in batch.events if event.current is not None)
    return EVENT_BYTES * len(batch.events) + values


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease and the monotonic second at which it ends."""

    ttl_seconds: float
    deadline: float


class AdoptedState(Protocol):
    """The state under a draft, as the draft reads it."""

    history_revisions: int
    """The most revisions that the history keeps."""
    history_bytes_max: int
    """The most bytes that the events of the history take in memory."""
    adoptions: int
    """The number of drafts adopted so far."""
    revision: Revision
    compacted: Revision
    next_lease: LeaseId
    leases: dict[LeaseId, Lease]
    next_deadline: float
    """The monotonic second at which the next lease ends."""
    history_bytes: int
    """The bytes that the events of the history take."""

    def get(self, key: str) -> KeyValue | None:
        """One key."""

    def keys_under(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""

    def batch(self, revision: Revision) -> WatchBatch:
        """The batch of a revision that is in the history."""

    def lease_keys(self, lease: LeaseId) -> Iterable[str]:
        """The keys attached to a lease; none where the lease is gone."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The durable changes of a draft; all of them belong into one commit."""

    revision: Revision
    compacted: Revision
    next_lease: LeaseId
    puts: tuple[KeyValue, ...]
    deletes: tuple[str, ...]
    batches: tuple[WatchBatch, ...]
    dropped: range
    """Revisions whose batches are removed from the history."""
    granted: tuple[tuple[LeaseId, float], ...]
    """Lease and its ttl in seconds."""
    ended: tuple[LeaseId, ...]


class Draft:
    """Requests judged over a state that does not change meanwhile."""

    def __init__(self, base: AdoptedState) -> None:
        self.base = base
        self.base_adoptions = base.adoptions
        self.revision = base.revision
        self.next_lease = base.next_lease
        self.keys: dict[str, KeyValue | None] = {}
        """Every written key; None for a deleted one."""
        self.leases: dict[LeaseId, float | None] = {}
        """The ttl in seconds of every granted or renewed lease; None for an ended one."""
        self.batches: list[WatchBatch] = []
        self.history_bytes = base.history_bytes
        """The bytes that the events of the history take once this draft is adopted."""
        self._compacted = base.compacted
        self._oldest = Revision(base.compacted + 1)
        self._no_deadline_before = base.next_deadline

    @property
    def compacted(self) -> Revision:
        """The newest revision whose batch is not kept."""
        return Revision(max(self._compacted, self.revision - self.base.history_revisions))

    def get(self, key: str) -> KeyValue | None:
        """One key, with the changes of this draft."""
        return self.keys[key] if key in self.keys else self.base.get(key)

    def apply(self, request: Request, now: float) -> Reply:
        """Judges one request made at monotonic second `now`; a refused request changes nothing itself."""
        self._end_due_leases(now)
        match request:
            case Txn():
                return self._txn(request)
            case Grant(ttl_seconds):
                return self._grant(ttl_seconds)
            case KeepAlive(lease_id):
                renewed = self._ttl_seconds(lease_id)
                if renewed is None:
                    return _lease_not_found(lease_id)
                self.leases[lease_id] = renewed
            case Revoke(lease_id):
                if self._ttl_seconds(lease_id) is not None:
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
        """The changes to make durable before this draft is adopted; None where there are none."""
        base = self.base
        granted, ended = [], []
        for lease_id, ttl_seconds in self.leases.items():
            if ttl_seconds is None and lease_id in base.leases:
                ended.append(lease_id)
            elif ttl_seconds is not None and lease_id not in base.leases:
                granted.append((lease_id, ttl_seconds))
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

    def _txn(self, request: Txn) -> TxnOutcome | MetadataError:
        refused = refusal(request)
        if refused is not None:
            return InvalidRequest(f"the transaction is refused: {refused}")
        succeeded = all(self._holds(compare) for compare in request.compare)
        branch = request.then if succeeded else request.otherwise
        for operation in branch:
            lease = operation.lease if isinstance(operation, Put) else None
            if lease is not None and self._ttl_seconds(lease) is None:
                return _lease_not_found(lease)
        written: dict[str, KeyValue | None] = {}
        results = tuple([self._operate(operation, written) for operation in branch])
        self._record(written)
        return TxnOutcome(succeeded, self.revision, results)

    def _holds(self, compare: Compare) -> bool:
        value = self.get(compare.key)
        if value is None:
            return compare.value == (b"" if compare.field is KeyField.VALUE else 0)
        return bool(getattr(value, compare.field.value) == compare.value)

    def _operate(self, operation: Operation, written: dict[str, KeyValue | None]) -> KeyValue | int | None:
        """Executes one operation of a branch whose earlier operations wrote `written`."""
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
        """Records the writes of one transaction or lease as the next revision."""
        if not written:
            return
        self.revision = Revision(self.revision + 1)
        self.keys.update(written)
        events = tuple([Event(key, current) for key, current in written.items()])
        self.batches.append(WatchBatch(self.revision, events))
        self.history_bytes += bytes_of(self.batches[-1])
        self.bound_history()

    def bound_history(self) -> None:
        """Drops the oldest batches while there are too many batches, or too many bytes (invariant 5)."""
        base, bytes_max = self.base, self.base.history_bytes_max
        while self._oldest <= self.compacted or (self.history_bytes > bytes_max and self._oldest < self.revision):
            at = self._oldest
            batch = base.batch(at) if at <= base.revision else self.batches[at - base.revision - 1]
            self.history_bytes -= bytes_of(batch)
            self._oldest = Revision(at + 1)
        self._compacted = max(self._compacted, Revision(self._oldest - 1))

    def _ttl_seconds(self, lease_id: LeaseId) -> float | None:
        """The lease's ttl; None if the lease does not exist."""
        if lease_id in self.leases:
            return self.leases[lease_id]
        lease = self.base.leases.get(lease_id)
        return None if lease is None else lease.ttl_seconds

    def _grant(self, ttl_seconds: float) -> LeaseId | InvalidRequest:
        if not (math.isfinite(ttl_seconds) and ttl_seconds > 0):
            return InvalidRequest(f"a lease of {ttl_seconds} seconds is refused: ask for a positive, finite time")
        lease_id = self.next_lease
        self.next_lease = LeaseId(lease_id + 1)
        self.leases[lease_id] = ttl_seconds
        return lease_id

    def _end_due_leases(self, now: float) -> None:
        """Ends due leases. The time of a lease granted or renewed in this draft has not begun (invariant 6)."""
        if now < self._no_deadline_before:
            return
        alive = {lease_id: lease for lease_id, lease in self.base.leases.items() if lease_id not in self.leases}
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
    return LeaseNotFound(
        f"lease {lease_id} expired or was revoked, and its keys were deleted with it: ask for a new one"
    )
