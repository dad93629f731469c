"""A reference model of the metadata service, simple at the cost of speed, and strategies for its requests.

The model keeps every key of every revision, so that a watch is the difference of two dicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import strategies as st

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
from gnomon.metadata.request import Compact, Grant, KeepAlive, Request, Revoke, Tick, Txn

Keys = dict[str, KeyValue]
ModelReply = TxnOutcome | LeaseId | type[MetadataError] | None

_KEYS = st.sampled_from(["a", "a/1", "a/1/x", "b", "é/1"])
_PREFIXES = st.sampled_from(["", "a", "a/", "a/1", "b", "é", "z"])
_LEASES = st.integers(1, 3).map(LeaseId)
_COMPARES = st.one_of(
    st.builds(
        Compare,
        _KEYS,
        st.sampled_from([KeyField.VERSION, KeyField.CREATE_REVISION, KeyField.MOD_REVISION]),
        st.integers(0, 6),
    ),
    st.builds(Compare, _KEYS, st.just(KeyField.VALUE), st.sampled_from([b"", b"0", b"1"])),
)
_PUTS = st.builds(Put, _KEYS, st.sampled_from([b"", b"0", b"1"]), st.none() | _LEASES)
_OPERATIONS = st.one_of(
    _PUTS, _PUTS, st.builds(Delete, _KEYS), st.builds(DeletePrefix, _PREFIXES.filter(bool)), st.builds(Get, _KEYS)
)
_BRANCHES = st.lists(_OPERATIONS, max_size=4).map(tuple)

prefixes = _PREFIXES
txns: st.SearchStrategy[Txn] = st.builds(Txn, st.lists(_COMPARES, max_size=2).map(tuple), _BRANCHES, _BRANCHES)
requests: st.SearchStrategy[Request] = st.one_of(
    txns,
    txns,
    st.builds(Grant, st.sampled_from([1.0, 5.0, 30.0, 0.0, math.inf])),
    st.builds(KeepAlive, _LEASES),
    st.builds(Revoke, _LEASES),
    st.builds(Compact, st.integers(0, 12).map(Revision)),
    st.just(Tick()),
)


class MetadataModel:
    """The state of a metadata service after some requests."""

    def __init__(self, history_revisions: int = 10_000) -> None:
        self.revisions: list[Keys] = [{}]
        self.leases: dict[LeaseId, tuple[float, float]] = {}
        """Lease → (ttl in seconds, deadline)."""
        self._granted = 0
        self._compacted = 0
        self._history_revisions = history_revisions

    @property
    def keys(self) -> Keys:
        """The current keys."""
        return self.revisions[-1]

    @property
    def revision(self) -> int:
        """The current revision."""
        return len(self.revisions) - 1

    @property
    def oldest_kept(self) -> int:
        """The oldest revision from which a watch may begin."""
        return max(self._compacted, self.revision - self._history_revisions) + 1

    def restart(self, now: float) -> None:
        """Restarts the service: every lease gets its full time again."""
        self.leases = {lease: (ttl, now + ttl) for lease, (ttl, _) in self.leases.items()}
        self._compacted = self.oldest_kept - 1

    def watched(self, prefix: str, from_revision: int) -> list[WatchBatch]:
        """The batches that a watch must have delivered by now; the events of one revision are in key order."""
        batches = []
        for revision in range(max(from_revision, 1), len(self.revisions)):
            before, after = self.revisions[revision - 1], self.revisions[revision]
            changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            events = tuple(Event(key, after.get(key)) for key in changed if key.startswith(prefix))
            if events:
                batches.append(WatchBatch(Revision(revision), events))
        return batches

    def apply(self, request: Request, now: float) -> ModelReply:
        """The reply that a service must give, or the type of its error."""
        for lease in [lease for lease, (_, deadline) in self.leases.items() if deadline <= now]:
            self._end(lease)
        match request:
            case Txn():
                return self._txn(request)
            case Grant(ttl):
                if not 0 < ttl < math.inf:
                    return InvalidRequest
                self._granted += 1
                self.leases[LeaseId(self._granted)] = (ttl, now + ttl)
                return LeaseId(self._granted)
            case KeepAlive(lease):
                if lease not in self.leases:
                    return LeaseNotFound
                ttl, _ = self.leases[lease]
                self.leases[lease] = (ttl, now + ttl)
            case Revoke(lease):
                if lease in self.leases:
                    self._end(lease)
            case Compact(revision):
                if revision > self.revision:
                    return InvalidRequest
                self._compacted = max(self._compacted, revision - 1)
            case Tick():
                pass
        return None

    def _end(self, lease: LeaseId) -> None:
        del self.leases[lease]
        left = {key: value for key, value in self.keys.items() if value.lease != lease}
        if left != self.keys:
            self.revisions.append(left)

    def _txn(self, request: Txn) -> TxnOutcome | type[MetadataError]:
        if _contradicts(request.then) or _contradicts(request.otherwise):
            return InvalidRequest
        succeeded = all(
            _field(self.keys.get(compare.key), compare.field) == compare.value for compare in request.compare
        )
        branch = request.then if succeeded else request.otherwise
        if any(isinstance(op, Put) and op.lease is not None and op.lease not in self.leases for op in branch):
            return LeaseNotFound
        after = dict(self.keys)
        results = [_operate(operation, after, Revision(self.revision + 1)) for operation in branch]
        if after != self.keys:
            self.revisions.append(after)
        return TxnOutcome(succeeded, Revision(self.revision), tuple(results))


def _operate(operation: Operation, keys: Keys, revision: Revision) -> KeyValue | int | None:
    match operation:
        case Get(key):
            return keys.get(key)
        case Put(key, value, lease):
            before = keys.get(key)
            created = revision if before is None else before.create_revision
            version = 1 if before is None else before.version + 1
            keys[key] = KeyValue(key, value, created, revision, version, lease)
            return keys[key]
    deleted = [key for key in keys if _deletes(operation, key)]
    for key in deleted:
        del keys[key]
    return len(deleted)


def _field(value: KeyValue | None, field: KeyField) -> int | bytes:
    absent: int | bytes = b"" if field is KeyField.VALUE else 0
    read: Callable[[KeyValue], int | bytes] = {
        KeyField.VALUE: lambda value: value.value,
        KeyField.VERSION: lambda value: value.version,
        KeyField.CREATE_REVISION: lambda value: value.create_revision,
        KeyField.MOD_REVISION: lambda value: value.mod_revision,
    }[field]
    return absent if value is None else read(value)


def _contradicts(branch: tuple[Operation, ...]) -> bool:
    puts = [operation.key for operation in branch if isinstance(operation, Put)]
    return len(set(puts)) < len(puts) or any(_deletes(operation, key) for operation in branch for key in puts)


def _deletes(operation: Operation, key: str) -> bool:
    match operation:
        case Delete(doomed):
            return key == doomed
        case DeletePrefix(prefix):
            return key.startswith(prefix)
    return False
