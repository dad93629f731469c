"""The entries of a table at one revision, read page by page while the table goes on. Pure.

1. Before a key that was not read yet is changed, its entry is noted. So a page has the entries as they were when the
   image began, whatever has changed since.
2. An image takes memory for the noted entries of keys that were not read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Final

from sortedcontainers import SortedDict

from gnomon.broker.tables.engines.layers import Layer, newest_of

NOTED_BYTES: Final = 200
"""The memory of a noted entry besides its key and its value."""


class NotedEntries:
    """The entries of keys before they were changed, None where a key had none."""

    def __init__(self) -> None:
        """Nothing is noted."""
        self._entries: SortedDict = SortedDict()
        self.bytes_used = 0

    def note(self, key: bytes, before: bytes | None) -> None:
        """The key is about to be changed; the first entry that is noted counts."""
        if key not in self._entries:
            self._entries[key] = before
            self.bytes_used += NOTED_BYTES + len(key) + len(before or b"")

    def scan(self, first: bytes) -> Layer:
        """The noted entries of the keys from `first` on."""
        for key in self._entries.irange(first):
            yield key, self._entries[key]

    def forget_below(self, first: bytes) -> None:
        """Forgets the entries of the keys below `first`."""
        while self._entries and self._entries.peekitem(0)[0] < first:
            key, before = self._entries.popitem(0)
            self.bytes_used -= NOTED_BYTES + len(key) + len(before or b"")


class TableImage:
    """One image, until `close`."""

    def __init__(
        self,
        layers: Callable[[bytes], Sequence[Layer]],
        read_below: Callable[[bytes], None],
        closed: Callable[[], None],
    ) -> None:
        """The image of the present entries.

        Args:
            layers: what was noted and the present entries, from a key on; what was noted first is the uppermost.
            read_below: called with the first key that is not read; notes of those below are not needed any more.
            closed: called at the end.
        """
        self._layers = layers
        self._read_below = read_below
        self._closed = closed
        self._first = b""
        self._is_closed = False
        self.is_read = False
        """Whether all entries were read."""

    def wants(self, key: bytes) -> bool:
        """Whether the entry of a key must be noted before it changes."""
        return not self.is_read and not self._is_closed and key >= self._first

    def page(self, count: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """The next entries, at most `count` and little more than `bytes_max` bytes; fewer, or none, does not mean that
        all were read."""
        assert not self._is_closed, "the image was closed before it was read"
        found, examined, size_bytes = [], 0, 0
        with ExitStack() as opened:
            layers = [opened.enter_context(closing(layer)) for layer in self._layers(self._first)]
            for key, packed in newest_of(layers):
                if examined == count or size_bytes >= bytes_max:
                    self._first = key
                    break
                examined += 1
                if packed is not None:
                    found.append((key, packed))
                    size_bytes += len(key) + len(packed)
            else:
                self.is_read = True
        self._read_below(self._first)
        return found

    def close(self) -> None:
        """The image is not needed any more. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._closed()
