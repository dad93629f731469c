"""The entries of the keys that one batch changes: those before the batch, and those after it. Pure.

1. The entry after a change depends on the entry before it, and on the change and its place in the log: its revision is
   the offset of the record, its version counts the records since the key was absent (`key_entry`).
2. A time to live counts from the time that the log has set, if it sets the times of records, and otherwise from the one
   that the producer gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnomon.log.entry import Offset
from gnomon.log.tables.changes import NO_TTL, KeyChange
from gnomon.log.tables.key_entry import EXPIRY_MS_MAX, NEVER, has_value, numbers_of, pack_entry


class BatchEntries:
    """The entries of one batch, as far as its changes are added."""

    __slots__ = ("_next_revision", "_stored", "after", "append_time_ms", "base_offset", "before")

    def __init__(self, newest: Callable[[bytes], bytes | None], base_offset: Offset, append_time_ms: int) -> None:
        """No change.

        Args:
            newest: gives the newest entry of a key before the batch; None, or one of version 0, if it has no value.
            base_offset: the offset of the batch.
            append_time_ms: the time of its records; -1 if they have those of their producer.
        """
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.after: dict[bytes, bytes] = {}
        """The entry of each changed key; one of version 0 if it is deleted."""
        self.before: dict[bytes, bytes | None] = {}
        """The entry of each changed key before the batch; None if it had no value."""
        self._stored = newest
        self._next_revision = base_offset

    def newest(self, key: bytes) -> bytes | None:
        """The entry of a key after the changes; None, or one of version 0, if it has no value."""
        found = self.after.get(key)
        return self._stored(key) if found is None else found

    def add(self, changes: Sequence[KeyChange]) -> None:
        """The next changes of the batch."""
        after, append_time_ms = self.after, self.append_time_ms
        for revision, (key, value, ttl_ms, timestamp_ms, _) in enumerate(changes, self._next_revision):
            if key in after:
                replaced = _with_value(after[key])
            else:
                replaced = self.before[key] = _with_value(self._stored(key))
            if value is None:
                after[key] = pack_entry(b"", revision, -1, 0, NEVER)
                continue
            create_revision, version = revision, 1
            if replaced is not None:
                _, create_revision, count, _ = numbers_of(replaced)
                version = count + 1
            expires_ms = NEVER
            if ttl_ms != NO_TTL:
                written_ms = timestamp_ms if append_time_ms < 0 else append_time_ms
                expires_ms = min(max(0, written_ms + ttl_ms), EXPIRY_MS_MAX)
            after[key] = pack_entry(value, revision, create_revision, version, expires_ms)
        self._next_revision = Offset(self._next_revision + len(changes))


def _with_value(packed: bytes | None) -> bytes | None:
    """The entry, None for one of a key that has no value."""
    return packed if packed is not None and has_value(packed) else None
