"""The interface of the metadata service; every backend implements `Metadata`.

1. Each transaction that wrote something has a revision of its own, a number greater than all earlier ones; so has the
   end of a lease that deleted keys. Numbers may be left out if the store serves other clients as well (an etcd).
2. A transaction is atomic: all its comparisons are evaluated against one state, then one of its two lists of operations
   is applied whole.
3. A watch delivers every event below its prefix from its start revision on, once, in the order of revisions, and all
   events of one revision together.
4. A watch from a revision that is no longer kept raises `HistoryCompacted` and never skips events: list again and watch
   from there.
5. A key's `version` counts its writes since it was created (1 at creation), so a writer that compares the version knows
   the next version before it writes. No two lives of a key have the same `create_revision`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NewType, Protocol, TypeAlias

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

KEY_BYTES_MAX = 500
"""The longest key in UTF-8 that every backend accepts (LMDB's own limit is 511)."""
TXN_BYTES_MAX = 3 << 19
"""The most bytes of keys and values in one transaction: as many as an etcd with its defaults accepts. The largest
transaction of a broker, positions of 120 subscriptions, has a third of it."""

GETS_MAX = 100
"""Keys that `read_many` reads in one transaction: an etcd takes 128 operations."""


class MetadataError(Exception):
    """The metadata service could not fulfil a request; the text says why and what to do."""


class HistoryCompacted(MetadataError):
    """The requested revision is older than the history that is kept."""

    def __init__(self, asked: Revision, oldest: Revision) -> None:
        super().__init__(f"revision {asked} is compacted: the oldest kept is {oldest}; list again and watch from there")
        self.asked, self.oldest = asked, oldest


class LeaseNotFound(MetadataError):
    """The lease expired, was revoked, or never existed."""


class InvalidRequest(MetadataError):
    """The request breaks a rule of this interface, independent of the store's content; nothing was applied."""


class MetadataUnavailable(MetadataError):
    """No answer: whether a write took effect is unknown."""


class MetadataFull(MetadataUnavailable):
    """The store has no space: certainly nothing was applied, and reads continue."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as of some revision."""

    key: str
    value: bytes
    create_revision: Revision
    mod_revision: Revision
    version: int
    lease: LeaseId | None = None


class KeyField(Enum):
    """The field of a key that a comparison reads; an absent key has 0 in every number and b"" as value."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Compare:
    """`key.field == value`; `Compare.absent(key)` and `Compare.version(key, n)` are short forms."""

    key: str
    field: KeyField
    value: int | bytes

    @classmethod
    def absent(cls, key: str) -> Compare:
        """The key does not exist."""
        return cls(key, KeyField.VERSION, 0)

    @classmethod
    def version(cls, key: str, version: int) -> Compare:
        """The key has been written exactly `version` times since it was created."""
        return cls(key, KeyField.VERSION, version)


@dataclass(frozen=True, slots=True)
class Put:
    """Sets a key; with a lease, the key is deleted with the lease."""

    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes one key, or nothing if it is absent."""

    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Deletes every key that begins with `prefix`."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Get:
    """Reads one key inside a transaction."""

    key: str


Operation: TypeAlias = Put | Delete | DeletePrefix | Get


@dataclass(frozen=True, slots=True)
class TxnOutcome:
    """The result of a transaction.

    `revision` is the store's revision after the transaction. `results` has one item per operation of the branch taken:
    the KeyValue for Put (as written) and Get (None when absent), the number of deleted keys for Delete and
    DeletePrefix.
    """

    succeeded: bool
    revision: Revision
    results: tuple[KeyValue | int | None, ...]


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Keys in order, all as of `revision`."""

    revision: Revision
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A key was written (`current` is set) or deleted (`current` is None)."""

    key: str
    current: KeyValue | None


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """All events of one revision below the watched prefix."""

    revision: Revision
    events: tuple[Event, ...]
    _first: str = field(init=False, repr=False, compare=False)
    _last: str = field(init=False, repr=False, compare=False)
    """The last key in order; the keys below a prefix are adjacent."""

    def __post_init__(self) -> None:
        keys = [event.key for event in self.events]
        object.__setattr__(self, "_first", min(keys, default=""))
        object.__setattr__(self, "_last", max(keys, default=""))

    def below(self, prefix: str) -> WatchBatch:
        """The batch with only the events below `prefix`; events are examined one by one only if some are below and some
        are not."""
        first_is_below = self._first.startswith(prefix)
        if first_is_below and self._last.startswith(prefix):
            return self
        if self._last < prefix or (self._first > prefix and not first_is_below):
            return WatchBatch(self.revision, ())
        return WatchBatch(self.revision, tuple([event for event in self.events if event.key.startswith(prefix)]))


class Metadata(Protocol):
    """A metadata backend. Every call may raise MetadataUnavailable; after that a write's outcome is unknown."""

    async def get(self, key: str) -> KeyValue | None:
        """One key at the time of the call."""

    async def range(self, prefix: str) -> RangeResult:
        """Every key that begins with `prefix` at the time of the call, in key order."""

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        """Applies `then` if all comparisons hold, and `otherwise` if not; the result is durable when this returns.

        Within a branch a key may be put once, and not both put and deleted; a Get sees the operations before it.

        Raises:
            InvalidRequest: the branches break the rule above, a key is empty or longer than `KEY_BYTES_MAX`, or the
                transaction has more than `TXN_BYTES_MAX` bytes.
            LeaseNotFound: a Put names a lease that does not exist; nothing was applied.
        """

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """Events of revisions >= `from_revision`, first past ones, then new ones as they happen.

        Raises (from the iterator):
            HistoryCompacted: `from_revision` is older than the history kept.
        """

    async def lease(self, ttl_seconds: float) -> LeaseId:
        """Grants a lease that ends `ttl_seconds` after its last keep-alive, or later, never earlier.

        Raises:
            InvalidRequest: `ttl_seconds` is not a positive, finite number.
        """

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renews a lease.

        Raises:
            LeaseNotFound: the lease does not exist any more, nor do its keys.
        """

    async def revoke(self, lease: LeaseId) -> None:
        """Ends a lease and deletes its keys, in one revision. Idempotent."""

    async def compact(self, revision: Revision) -> None:
        """Deletes the history before `revision`; the current keys are kept. Idempotent.

        Raises:
            InvalidRequest: `revision` has not happened yet.
        """


async def read_many(metadata: Metadata, keys: Iterable[str]) -> dict[str, KeyValue]:
    """Those of the keys that exist, in transactions of GETS_MAX keys; the keys of one transaction are of one revision.

    Raises:
        MetadataError: they cannot be read.
    """
    found: dict[str, KeyValue] = {}
    rest = iter(keys)
    while group := [Get(key) for key in islice(rest, GETS_MAX)]:
        for item in (await metadata.txn((), group)).results:
            if isinstance(item, KeyValue):
                found[item.key] = item
    return found
