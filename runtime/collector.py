"""Python's cyclic garbage collector, kept from holding a daemon up over all that it holds.

A full pass looks at every container alive, at 0.1 to 0.2 us each, while everything else waits: with 100,000
subscriptions, tenths of a second. CPython (3.11) makes one after ten passes over the middle generation, if what has
come to the oldest one since the last full pass is more than a quarter of what that left there.

1. What survives a full pass is set aside (`gc.freeze`), so the next one looks only at what came since. That is some
   70,000 objects where much comes at once: 700 × 10 × 10 allocations more than releases, by the thresholds.
2. Set aside is not kept: reference counts free it as ever. Only cycles are not found among it, of what was alive at a
   full pass and became garbage later.
3. So once more blocks of memory are in use than BLOCKS_MIN, and than twice what was left when everything was looked at
   last, nothing is set aside any more, and the next full pass looks at everything. Garbage cannot outgrow what is in
   use, or some 150 MB; and a process that is smaller never pays for such a pass.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

BLOCKS_MIN: Final = 2_000_000
"""Blocks of Python's allocator; most objects are one or two, of some 75 bytes."""
OLDEST: Final = 2


class _Collector:
    """Told by the collector before and after each of its passes."""

    def __init__(self, blocks_min: int) -> None:
        self._blocks_min = blocks_min
        self._everything = False
        """Nothing is set aside: the next full pass looks at everything."""
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
    """For the block, full passes of the garbage collector are short; see the module.

    What is here already, the modules imported, is set aside at once. For the outermost frame of a process alone.
    """
    collector = _Collector(blocks_min)
    gc.freeze()
    gc.callbacks.append(collector)
    try:
        yield
    finally:
        gc.callbacks.remove(collector)
        gc.unfreeze()
