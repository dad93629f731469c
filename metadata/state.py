"""The metadata state machine: keys, revisions, leases and history, with neither clock nor disk.

A `Draft` over a `State` judges requests. The state does not change until its owner calls `adopt`, after the draft's
`changes` are durable; dropping the draft undoes everything. `State.apply` does both at once, for owners without a disk.

1. The revision grows by one for each transaction that wrote something, and for each lease that ended with keys; nothing
   else changes it.
2. A request is judged against the state with all earlier requests of its draft, and is applied whole or not at all.
3. Revision r has one batch with one event for each key that it wrote. A key that was put in revision r has the
   mod_revision r until the next put of that key, or its deletion.
4. A key's version is 1 when it is created and grows by one per put; create_revision is the revision of its creation.
5. Batches of (compacted, revision] are kept without a gap: at most `history_revisions` of them, whose events take at
   most `history_bytes_max` of memory, except that the newest batch is always kept. Reading an older revision raises
   `HistoryCompacted`.
6. A lease that is not revoked ends, with its keys, just before the first request made at or after its deadline is
   judged. The time of a lease begins when the draft that granted or renewed it is adopted, which is also when the
   lease's owner is answered.
7. A lease id is never granted twice. A put without a lease detaches its key.
8. Of the drafts begun between two adoptions at most one is adopted.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnomon.metadata.client import HistoryCompacted, KeyValue, LeaseId, RangeResult, Revision, WatchBatch
from gnomon.metadata.draft import Changes, Draft, Lease, bytes_of
from gnomon.metadata.request import Reply, Request

HISTORY_REVISIONS = 10_000
HISTORY_BYTES = 32 << 20
"""Each takes some 400 bytes of memory; flushes of subscription positions can make thousands of events a second."""

_NO_REVISION = Revision(0)
_FIRST_LEASE = LeaseId(1)

# Above this, one pass over the list of keys is cheaper than moving its tail for each (measured at 100,000 keys).
_KEY_MOVES_MAX = 300


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The part of a state that survives a restart; deadlines start again."""

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
        history_bytes_max: int = HISTORY_BYTES,
    ) -> None:
        """Continues from a snapshot, or begins empty at revision 0.

        Args:
            now: monotonic seconds from which the leases of the snapshot run their full ttl again.
            history_revisions: the number of revisions that a watch can go back.
            history_bytes_max: and the memory that their events take.
        """
        assert history_revisions > 0, "a history of no revisions could serve no watch"
        snapshot = snapshot or Snapshot()
        self.history_revisions = history_revisions
        self.history_bytes_max = history_bytes_max
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
        self.history_bytes = sum(map(bytes_of, self._history.values()))
        """The bytes that the events of the history take."""
        fresh = Draft(self)
        fresh.bound_history()
        self.history_bytes = fresh.history_bytes
        self._trim(fresh.compacted)

    def __len__(self) -> int:
        """The number of keys."""
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
        """The first batch at or after `from_revision` with events below `prefix`, and the revision to continue from.

        Raises:
            HistoryCompacted: `from_revision` is older than the history kept.
        """
        at = max(from_revision, 1)  # revision 0 is empty
        if at <= self.compacted:
            raise HistoryCompacted(from_revision, Revision(self.compacted + 1))
        while at <= self.revision:
            batch = self._history[Revision(at)].below(prefix)
            at += 1
            if batch.events:
                return batch, Revision(at)
        return None, Revision(at)

    def batch(self, revision: Revision) -> WatchBatch:
        """The batch of a revision that is in the history."""
        return self._history[revision]

    def lease_keys(self, lease: LeaseId) -> Iterable[str]:
        """The keys attached to a lease; none where the lease is gone."""
        return self._lease_keys.get(lease, {})

    def adopt(self, draft: Draft, now: float) -> None:
        """Adopts a draft made over this state, at monotonic second `now`; the draft must not be used again."""
        assert draft.base is self, "invariant 8: the draft is of another state"
        assert draft.base_adoptions == self.adoptions, "invariant 8: another draft was adopted since"
        self.adoptions += 1
        self.revision, self.next_lease = draft.revision, draft.next_lease
        for lease_id, ttl_seconds in draft.leases.items():
            if ttl_seconds is None:
                self.leases.pop(lease_id, None)
            else:
                self.leases[lease_id] = Lease(ttl_seconds, now + ttl_seconds)
                self._lease_keys.setdefault(lease_id, {})
        self._adopt_keys(draft.keys)
        for lease_id, ttl_seconds in draft.leases.items():
            if ttl_seconds is None:
                assert not self._lease_keys.pop(lease_id, None), "invariant 6: a key outlived its lease"
        self._history.update((batch.revision, batch) for batch in draft.batches)
        self.history_bytes = draft.history_bytes
        self._trim(draft.compacted)
        if draft.leases:
            self.next_deadline = self._earliest_deadline()

    def renew(self, lease_id: LeaseId, asked: float, now: float) -> bool:
        """Renews a live lease without a draft, for a store that cannot commit: a renewal has nothing to make durable.

        Returns:
            Whether the lease was alive at monotonic second `asked`; a due lease ends with the next draft.
        """
        lease = self.leases.get(lease_id)
        if lease is None or lease.deadline <= asked:
            return False
        self.leases[lease_id] = Lease(lease.ttl_seconds, now + lease.ttl_seconds)
        self.next_deadline = self._earliest_deadline()
        return True

    def apply(self, request: Request, now: float) -> tuple[Reply, Changes | None]:
        """Judges and adopts one request at monotonic second `now`; changes are None if nothing durable changed."""
        draft = Draft(self)
        reply = draft.apply(request, now)
        changes = draft.changes()
        self.adopt(draft, now)
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
