"""The state of one partition's table, as its leader shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The table of one partition."""

    partition: int
    revision: int
    """The last revision that is applied; -1 without one."""
    keys: int
    bytes_used: int
    """The bytes of keys and entries; for a table in memory, with those around them."""
    log_start: int
    log_end: int
    """The offsets of the log."""
    snapshot_revision: int
    """The last revision of the newest snapshot; -1 without one."""
    snapshot_created_ms: int
    """The time of the newest snapshot in milliseconds since 1970; -1 without one."""
    snapshot_failure: str | None
    """The reason why the last attempt at a snapshot failed."""
    unflushed_bytes: int
    """The memory of changes that are not on disk yet; 0 for a table in memory."""
    watches: int
    digest: str | None = None
    """SHA-256 over keys, revisions and values at `revision`, in hexadecimal, if it was asked for."""

    @classmethod
    def decode(cls, partition: int, fields: Mapping[str, Any]) -> TableStatus:
        """A state as a broker has sent it.

        Raises:
            ValueError: it is in another form.
        """
        known = {name: fields[name] for name in cls.__slots__ if name in fields}
        digest = fields.get("digest")
        try:
            return cls(**{**known, "partition": partition, "digest": None if digest is None else digest.hex()})
        except (TypeError, AttributeError) as error:
            raise ValueError(f"the state of a table has another form: {error}") from None
