"""Layers of a table's entries, one over the other: of equal keys the entry of the upper layer counts. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeAlias

Layer: TypeAlias = Generator[tuple[bytes, bytes | None]]
"""Keys with their entries in the order of the keys, None for a key without one; to be closed after use."""


def newest_of(layers: Sequence[Iterable[tuple[bytes, bytes | None]]]) -> Iterator[tuple[bytes, bytes | None]]:
    """Merges layers, the uppermost first."""
    if len(layers) == 1:
        yield from layers[0]
        return
    last = None
    for key, _, packed in heapq.merge(*(_numbered(number, layer) for number, layer in enumerate(layers))):
        if key != last:
            last = key
            yield key, packed


def _numbered(number: int, layer: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, int, bytes | None]]:
    """The items of a layer, so that those of equal keys are in the order of the layers."""
    return ((key, number, packed) for key, packed in layer)
