"""Bounds the pauses of Python's cyclic garbage collector in a daemon with many objects.

A full pass looks at every container alive, at 0.1 to 0.2 us each, while everything else waits: with 100,000
subscriptions, tenths of a second. CPython (3.11) makes a full pass after ten passes over the middle generation, if the
objects added to the oldest generation since the last full pass exceed a quarter of the survivors of that pass.

1. Survivors of a full pass are frozen (`gc.freeze`), so the next full pass looks only at newer objects. These are some
   14,000 when many arrive at once, and take 1.5 ms, on a slow machine 5: a full pass begins when allocations exceed
   releases by 700 × 10 × 2, instead of CPython's 700 × 10 × 10.
2. Frozen objects are still freed by their reference counts. Only cycles of frozen objects are not found when they
   become garbage.
3. If, after a full pass, more than BLOCKS_MIN memory blocks (some 150 MB) are in use, and more than twice as many as
   after the last pass over everything, all objects are unfrozen, and the next full pass looks at everything. So cycles
   that became garbage may stay until the memory in use has doubled; a process below BLOCKS_MIN never finds them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

BLOCKS_MIN: Final = 2_000_000
"""Blocks of Python's allocator; most objects are one or two blocks of some 75 bytes."""
OLDEST: Final = 2
THRESHOLDS: Final = (700, 10, 2)


class _Collector:
    """A callback of the garbage collector, called before and after each of its passes."""

    def __init__(self, blocks_min: int) -> None:
        self._blocks_min = blocks_min
        self._everything = False
        """Nothing is frozen: the next full pass looks at everything."""
        self._bound = blocks_min

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop" or info["generation"] != OLDEST:
            return
        blocks = sys.getallocatedblocks()
        if self._everything:
            self._everything = False
            self._bound = max(self._blocks_min, 2 * blocks)
        if blocks > self._bound:
            self._everything = True
            gc.unfreeze()
        else:
            gc.freeze()


@contextmanager
def short_collections(*, blocks_min: int = BLOCKS_MIN) -> Iterator[None]:
    """Keeps full passes of the garbage collector short within the block; see the module.

    Objects that exist already, such as imported modules, are frozen at once. Only for the outermost frame of a process.
    """
    collector = _Collector(blocks_min)
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    gc.callbacks.append(collector)
    try:
        yield
    finally:
        gc.callbacks.remove(collector)
        gc.set_threshold(*before)
        gc.unfreeze()
