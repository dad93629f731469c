"""The applied entries of one partition's table, as `table_state` uses them: in memory, or on disk."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from gnomon.broker.tables.engines.table_image import TableImage


class TableEngine(Protocol):
    """A sorted map from keys to stored entries (`key_entry`)."""

    @property
    def bytes_used(self) -> int:
        """The bytes of all keys and entries; in memory, with those around them."""

    def __len__(self) -> int:
        """The number of keys."""

    def get(self, key: bytes) -> bytes | None:
        """The stored entry of a key; None if it has none."""

    def looking_up(self) -> AbstractContextManager[object]:
        """For a block without a pause that gets many keys."""

    def put(self, key: bytes, packed: bytes, before: bytes | None) -> None:
        """Stores the entry of a key; `before` is the one that `get` returns."""

    def delete(self, key: bytes, before: bytes | None) -> None:
        """Removes the entry of a key, which is `before`; nothing is to be done if that is None."""

    def close(self) -> Iterator[None]:
        """The table is not used here any more; frees its memory, a part in each step."""

    def expiring(self, until_ms: int, count: int) -> list[bytes]:
        """At most `count` keys whose values expire at `until_ms` or before, the earliest first."""

    @property
    def next_expiry_ms(self) -> int | None:
        """The earliest expiry; None if no key will expire."""

    def scan(self, first: bytes, end: bytes | None) -> Generator[tuple[bytes, bytes]]:
        """Keys from `first` to below `end` with their entries, in order; to be closed before the map changes.

        Args:
            end: None for all keys from `first` on.
        """

    def count(self, first: bytes, end: bytes | None) -> tuple[int, bytes | None]:
        """The number of keys from `first` to below `end`.

        Returns:
            The number of those that were counted in this turn, and the key from which on to count in a later one; None
            if none are left.
        """

    def refusal(self, more_bytes: int) -> str | None:
        """The reason why a write of as many bytes is refused; None if it is not."""

    async def prepare_image(self) -> None:
        """Makes ready for `begin_image`, after the last image was closed.

        Raises:
            WorldError: that is not possible now.
        """

    def begin_image(self) -> TableImage:
        """The present entries, to be read in later turns; there is one image at a time."""
