"""The metadata service as its users see it; every backend implements `Metadata`.

1. One global revision grows with each write transaction that changed something, of which no two share one; it never
   goes back. It may grow by more than one, where the store serves others beside (an etcd).
2. A transaction is atomic: all comparisons are judged against one state, then one branch is applied whole.
3. A watch delivers every event after its start revision once, in revision order, and all events of one revision
   together.
4. A revision that is no longer kept is the error `Compacted`, never a gap: list again and watch from there.
5. A key's `version` counts its writes since it was created (1 at creation), so a writer that compares it knows the
   next one before it writes; `create_revision` is unique to one life of a key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType, Protocol, TypeAlias

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

KEY_BYTES_MAX = 500
"""Longest key in UTF-8 that every backend takes (LMDB's own limit is 511)."""


class MetadataError(Exception):
    """The metadata service could not do what was asked; the text says why and what to do."""


class Compacted(MetadataError):
    """The revision asked for is older than the history that is kept."""

    def __init__(self, asked: Revision, oldest: Revision) -> None:
        super().__init__(f"revision {asked} is compacted: the oldest kept is {oldest}; list again and watch from there")
        self.asked, self.oldest = asked, oldest


class LeaseNotFound(MetadataError):
    """The lease expired, was revoked, or never was."""


class InvalidRequest(MetadataError):
    """The request breaks a rule of this interface, whatever the store holds; nothing was applied."""


class MetadataUnavailable(MetadataError):
    """No answer: whether a write took effect is unknown."""


class MetadataFull(MetadataUnavailable):
    """The store has no room: nothing was applied, for certain, and reads go on."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as of some revision."""

    key: str
    value: bytes
    create_revision: Revision
    mod_revision: Revision
    version: int
    lease: LeaseId | None = None


class Field(Enum):
    """What of a key a comparison looks at; an absent key has 0 in every number and b"" as value."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Compare:
    """`key.field == value`; `Compare.absent(key)` and `Compare.version(key, n)` say it shorter."""

    key: str
    field: Field
    value: int | bytes

    @classmethod
    def absent(cls, key: str) -> Compare:
        """The key does not exist."""
        return cls(key, Field.VERSION, 0)

    @classmethod
    def version(cls, key: str, version: int) -> Compare:
        """The key has been written exactly `version` times since it was created."""
        return cls(key, Field.VERSION, version)


@dataclass(frozen=True, slots=True)
class Put:
    """Sets a key; with a lease, the key goes when the lease does."""

    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes one key, or nothing where it is absent."""

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
class TxnResult:
    """What a transaction did.

    `revision` is the store's after it. `results` has one item per operation of the branch taken: the KeyValue for Put
    (as written) and Get (None when absent), the number of deleted keys for Delete and DeletePrefix.
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
    """Of the keys in order; those below a prefix are side by side there."""

    def __post_init__(self) -> None:
        keys = [event.key for event in self.events]
        object.__setattr__(self, "_first", min(keys, default=""))
        object.__setattr__(self, "_last", max(keys, default=""))

    def below(self, prefix: str) -> WatchBatch:
        """The same with the events below `prefix` alone; each is looked at only where some are and some are not."""
        first_is_below = self._first.startswith(prefix)
        if first_is_below and self._last.startswith(prefix):
            return self
        if self._last < prefix or (self._first > prefix and not first_is_below):
            return WatchBatch(self.revision, ())
        return WatchBatch(self.revision, tuple([event for event in self.events if event.key.startswith(prefix)]))


class Metadata(Protocol):
    """A metadata backend. Every call may raise MetadataUnavailable; after it a write's outcome is unknown."""

    async def get(self, key: str) -> KeyValue | None:
        """One key, now."""

    async def range(self, prefix: str) -> RangeResult:
        """Every key that begins with `prefix`, now, in key order."""

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """If all comparisons hold applies `then`, else `otherwise`; durable when it returns.

        Within a branch a key may be put once, and not both put and deleted; a Get sees what stands before it.

        Raises:
            InvalidRequest: the branches break the rule above, or a key is empty or longer than `KEY_BYTES_MAX`.
            LeaseNotFound: a Put names a lease that is gone; nothing was applied.
        """

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """Events of revisions >= `from_revision`, first those of the past, then live.

        Raises (from the iterator):
            Compacted: `from_revision` is older than the history kept.
        """

    async def lease(self, ttl_seconds: float) -> LeaseId:
        """Grants a lease that ends `ttl_seconds` after its last keep-alive, or later, never earlier.

        Raises:
            InvalidRequest: `ttl_seconds` is not a positive, finite number.
        """

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renews a lease.

        Raises:
            LeaseNotFound: it is gone, and its keys with it.
        """

    async def revoke(self, lease: LeaseId) -> None:
        """Ends a lease and deletes its keys, in one revision. Idempotent."""

    async def compact(self, revision: Revision) -> None:
        """Forgets the history before `revision`; keys as they stand are kept. Idempotent.

        Raises:
            InvalidRequest: `revision` has not happened yet.
        """
