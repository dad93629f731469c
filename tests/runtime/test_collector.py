"""Full passes of the garbage collector; numbers cite the invariants of `collector`."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from gnomon.runtime.collector import THRESHOLDS, short_collections

MANY = 50_000


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


class Plain:
    """Refers to nothing."""


@pytest.fixture(autouse=True)
def _passes_only_on_demand() -> Iterator[None]:
    gc.disable()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


def looked_at() -> int:
    """The number of objects that the next full pass examines."""
    return len(gc.get_objects())


def test_a_full_pass_examines_only_objects_created_since_the_last_one() -> None:  # 1
    with short_collections(blocks_min=sys.maxsize):
        held = [[Plain()] for _ in range(MANY)]
        assert looked_at() > MANY
        gc.collect()
        assert looked_at() < MANY / 10
        more = [[Plain()] for _ in range(MANY)]
        assert MANY < looked_at() < 3 * MANY
    assert len(held) + len(more) == 2 * MANY


def test_cycles_created_since_the_last_pass_are_freed() -> None:  # 1
    with short_collections(blocks_min=sys.maxsize):
        gc.collect()
        ring = weakref.ref(Ring())
        assert ring() is not None
        gc.collect()
        assert ring() is None


def test_a_frozen_object_is_freed_when_nothing_refers_to_it() -> None:  # 2
    with short_collections(blocks_min=sys.maxsize):
        plain = Plain()
        freed = weakref.ref(plain)
        gc.collect()
        del plain
        assert freed() is None


def test_frozen_cycles_are_freed_once_the_process_has_grown() -> None:  # 3
    with short_collections(blocks_min=sys.getallocatedblocks() + MANY):
        rings = [Ring() for _ in range(MANY // 10)]
        freed = weakref.ref(rings[0])
        gc.collect()
        rings.clear()
        gc.collect()
        assert freed() is not None, "it was not set aside: the test shows nothing"
        held = [[Plain()] for _ in range(MANY)]
        gc.collect()  # notices the growth
        gc.collect()  # examines all objects
        assert freed() is None
        gc.collect()
        assert looked_at() < MANY, "what is left is set aside again"
    assert len(held) == MANY


def test_all_objects_are_examined_only_after_the_process_has_doubled() -> None:  # 3
    with short_collections(blocks_min=0):
        gc.collect()
        gc.collect()
        held = [[Plain()] for _ in range(MANY)]
        gc.collect()
        assert looked_at() < MANY / 10
    assert len(held) == MANY


def test_the_end_of_the_block_restores_the_collector() -> None:
    before = list(gc.callbacks), gc.get_threshold()
    with short_collections():
        assert gc.callbacks != before[0]
        assert gc.get_threshold() == THRESHOLDS
    assert (gc.callbacks, gc.get_threshold()) == before
    assert gc.get_freeze_count() == 0
