"""Entries of a table, and pages of them, as the native client shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gnomon.log.tables.key_entry import NEVER, unpack_entry


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The newest value of one key."""

    key: bytes
    value: bytes
    revision: int
    """The offset of the record that wrote the value, in the key's partition."""
    create_revision: int
    """The revision of the first value since the key was absent."""
    version: int
    """The number of values since then."""
    expires_ms: int | None
    """The milliseconds since 1970 from which on the key is deleted; None for never."""
    partition: int
    age_ms: int | None = None
    """Of a stale read: the milliseconds since its broker's last news of the log. None for other reads."""

    @classmethod
    def decode(cls, key: bytes, packed: bytes, partition: int) -> TableEntry:
        """An entry as a broker has sent it.

        Raises:
            ValueError: it is in another form.
        """
        value, revision, create_revision, version, expires_ms = unpack_entry(packed)
        expires = None if expires_ms == NEVER else expires_ms
        return cls(key, value, revision, create_revision, version, expires, partition)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a scan."""

    entries: Sequence[TableEntry]
    """In the order of their keys; without values if only keys were asked for."""
    after: bytes | None
    """The next page begins after this key; None for the last page."""
    revisions: Mapping[int, int]
    """By partition, the revision that the page shows; -1 for a partition without records."""
    ages_ms: Mapping[int, int] = field(default_factory=dict)
    """Of a stale scan: by partition, the milliseconds since its broker's last news of the log."""

    @property
    def keys(self) -> list[bytes]:
        """The keys of the entries."""
        return [entry.key for entry in self.entries]


@dataclass(frozen=True, slots=True)
class TxnResult:
    """The outcome of a transaction."""

    succeeded: bool
    """Whether all comparisons held, so that `then` was done; otherwise `otherwise` was."""
    answers: Sequence[TableEntry | int | None]
    """For each operation: the revision of a put or a deletion (-1 if the key was absent), the entry that a get has
    read (None if the key is absent), the new number of an increment."""
    revision: int
    """The revision of the last record that was written; -1 if nothing was."""
