"""Watches of a table, and the batches that wake them; numbers cite the invariants of `table_watches`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.tables.table_state import AppliedBatch
from gnomon.broker.tables.watches import table_watches, watched_batch
from gnomon.broker.tables.watches.table_watches import KeyWatch, TableWatches, WatchesMemory
from gnomon.broker.tables.watches.watched_batch import BatchSpan, WatchedBatch, WatchedPrefixes
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import NO_TTL, KeyChange
from gnomon.testing.simulation.simulation import Simulation, simulate

SECONDS = 1.0
KEYS = st.binary(max_size=4).map(lambda key: bytes(byte % 3 for byte in key))


def batch_at(base_offset: int, keys: Sequence[bytes]) -> AppliedBatch:
    return AppliedBatch(Offset(base_offset), [KeyChange(key, b"v", NO_TTL, 0, False) for key in keys])


def wanted(span: BatchSpan, watch: KeyWatch) -> list[int]:
    """The offsets of a watch's changes."""
    numbers = range(span.first, span.end)
    found = [span.batch.base_offset + number for number in numbers if changed(span, number).startswith(watch.prefix)]
    return [offset for offset in found if offset >= watch.first]


def changed(span: BatchSpan, number: int) -> bytes:
    return span.batch.changes[number].key


def with_watches(work: Callable[[TableWatches, trio.Nursery], Awaitable[None]]) -> float:
    """Runs `work` in a simulation; returns the virtual seconds that it took."""

    async def scenario(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await work(TableWatches(WatchesMemory(), simulation.clock, nursery), nursery)

    return simulate(1, scenario).virtual_seconds


def begun(watches: TableWatches, prefix: bytes, offset: int = 0) -> KeyWatch:
    watch = KeyWatch(prefix, Offset(offset))
    watches.add(watch)
    return watch


@given(st.lists(KEYS, max_size=20), st.lists(KEYS, max_size=10), st.integers(1, 5))
def test_the_changes_of_each_watched_prefix_are_found(keys: list[bytes], prefixes: list[bytes], at_once: int) -> None:
    watched: WatchedPrefixes[int] = WatchedPrefixes()
    for number, prefix in enumerate([*prefixes, b"gone"]):
        watched.add(prefix, number)
    watched.remove(b"gone", len(prefixes))
    looked_up = WatchedBatch(batch_at(7, keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched_batch, "LOOKUPS_AT_ONCE", at_once)
        for _ in looked_up.look_up(watched):
            pass
    numbers = {prefix: [at for at, key in enumerate(keys) if key.startswith(prefix)] for prefix in prefixes}
    assert looked_up.spans == {prefix: (found[0], found[-1]) for prefix, found in numbers.items() if found}
    assert sorted(watched.of(prefixes[0]) if prefixes else []) == [
        number for number, prefix in enumerate(prefixes) if prefix == prefixes[0]
    ]
    assert watched.lengths == sorted({len(prefix) for prefix in prefixes})


def test_a_watch_that_waits_is_woken_by_a_batch_with_its_key_only() -> None:  # 3
    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a")
        nursery.start_soon(watches.wait, watch, SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        for offset in range(5):
            watches.applied(batch_at(offset, [b"b"]))
        assert watch.waits
        watches.applied(batch_at(5, [b"b", b"ab"]))
        assert (watch.waits, watch.position) == (False, 5)
        assert watches.kept_for(watch) == (batch_at(5, [b"b", b"ab"]), 1, 2)

    assert with_watches(work) < SECONDS


def test_batches_of_other_keys_move_the_position_of_a_watch_that_waits() -> None:  # 3
    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a")
        nursery.start_soon(watches.wait, watch, SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        watches.applied(batch_at(0, [b"b"] * 3))
        await trio.sleep(SECONDS + 0.1)
        assert watch.position == 3

    with_watches(work)


def test_a_watch_does_not_wait_for_a_change_that_came_while_it_read() -> None:  # 3
    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a")
        watch.reads()
        watches.applied(batch_at(0, [b"a"]))
        await watches.wait(watch, SECONDS)
        assert watch.position == 0
        assert watches.kept_for(watch) == (batch_at(0, [b"a"]), 0, 1)

    assert with_watches(work) < SECONDS


def test_a_long_batch_is_looked_up_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    monkeypatch.setattr(watched_batch, "LOOKUPS_AT_ONCE", 1)

    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a")
        nursery.start_soon(watches.wait, watch, 100 * SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        watches.applied(batch_at(0, [b"b"] * 999 + [b"a"]))
        watches.applied(batch_at(1_000, [b"a"]))  # after the one before
        assert watches.kept_for(watch) is None
        assert watch.waits
        await watch.signal.wait()
        assert watches.kept_for(watch) == (batch_at(0, [b"b"] * 999 + [b"a"]), 999, 1_000)
        began = trio.current_time()
        while watches.kept_for(KeyWatch(b"a", Offset(1_000))) is None:  # noqa: ASYNC110 - it sets no event
            await trio.sleep(0.001)
        assert trio.current_time() - began < SECONDS

    assert with_watches(work) > 0.03  # 1,000 look-ups, at most 20 in a turn


def test_all_watches_read_the_log_if_too_many_changes_wait(monkeypatch: pytest.MonkeyPatch) -> None:  # 5
    monkeypatch.setattr(watched_batch, "LOOKUPS_AT_ONCE", 1)
    monkeypatch.setattr(table_watches, "UNSEEN_CHANGES_MAX", 3)

    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a")
        nursery.start_soon(watches.wait, watch, SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        for offset in range(5):
            watches.applied(batch_at(2 * offset, [b"a", b"a"]))
            assert len(watches._unseen) <= 2
        await trio.sleep(SECONDS / 2)
        assert watch.signal.is_set()
        assert (watch.waits, watch.position, watches.kept_for(watch)) == (False, 0, None)
        watches.applied(batch_at(10, [b"a", b"a"]))
        await trio.sleep(SECONDS / 2)
        watch.position = Offset(10)
        assert watches.kept_for(watch) is not None

    with_watches(work)


def test_all_watches_are_woken_if_batches_before_were_not_applied_here() -> None:  # 5
    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a", 100)
        nursery.start_soon(watches.wait, watch, SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        watches.applied(batch_at(120, [b"b"]))
        assert (watch.signal.is_set(), watch.waits, watch.position) == (True, False, 100)

    assert with_watches(work) < SECONDS


def test_a_batch_that_was_looked_up_before_a_watch_began_is_read_from_the_log() -> None:  # 4
    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        before = begun(watches, b"b")
        watches.applied(batch_at(0, [b"a", b"b"]))
        late = begun(watches, b"a")
        watches.applied(batch_at(2, [b"a"]))
        assert watches.kept_for(before) == (batch_at(0, [b"a", b"b"]), 1, 2)
        assert watches.kept_for(late) is None
        late.position = Offset(2)
        assert watches.kept_for(late) == (batch_at(2, [b"a"]), 0, 1)

    with_watches(work)


def test_the_last_batches_are_kept_while_there_are_watches(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(table_watches, "KEPT_BYTES", 1_000)

    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        watch = begun(watches, b"a")
        for offset in range(100):
            watches.applied(batch_at(offset, [b"b"]))
        kept = []
        for offset in range(100):
            watch.position = Offset(offset)
            if watches.kept_for(watch) is not None:
                kept.append(offset)
        assert kept == [96, 97, 98, 99]
        watches.remove(watch)
        watch = begun(watches, b"a", 99)
        assert watches.kept_for(watch) is None
        assert len(watches) == 1

    with_watches(work)


def test_the_tables_of_a_broker_keep_batches_up_to_a_common_bound(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(table_watches, "ALL_KEPT_BYTES", 1_000)
    memory = WatchesMemory()

    async def scenario(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            tables = [TableWatches(memory, simulation.clock, nursery) for _ in range(2)]
            one, two = [begun(table, b"a") for table in tables]
            for offset in range(4):
                tables[0].applied(batch_at(offset, [b"a"]))
                tables[1].applied(batch_at(offset, [b"a"] * 4))
            assert memory.bytes_used == 4 * 202
            assert tables[0].kept_for(one) is not None
            assert tables[1].kept_for(two) is None
            tables[0].remove(one)
            assert memory.bytes_used == 0
            tables[1].applied(batch_at(4, [b"a"] * 4))
            two.position = Offset(4)
            assert tables[1].kept_for(two) is not None

    simulate(1, scenario)


@pytest.mark.parametrize("seed", range(30))
def test_every_watch_reads_each_of_its_changes_once_whenever_it_waits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)
    monkeypatch.setattr(table_watches, "UNSEEN_CHANGES_MAX", draw.choice([3, 100_000]))
    monkeypatch.setattr(table_watches, "KEPT_BYTES", draw.choice([0, 1_000, 1 << 20]))
    monkeypatch.setattr(table_watches, "WOKEN_AT_ONCE", draw.choice([1, 50]))
    monkeypatch.setattr(watched_batch, "LOOKUPS_AT_ONCE", draw.choice([1, 3, 2_000]))
    log: list[AppliedBatch] = []
    shown: dict[KeyWatch, list[int]] = {}

    async def follow(watches: TableWatches, watch: KeyWatch, changes: int) -> None:
        shown[watch] = []
        watches.add(watch)
        while watch.position < changes:
            await trio.sleep(draw.choice([0, 0, 0.001, 0.01]))
            watch.reads()
            kept = watches.kept_for(watch)
            await trio.sleep(draw.choice([0, 0, 0.001]))
            spans = [BatchSpan(batch, 0, len(batch.changes)) for batch in log if batch.next_offset > watch.position]
            for span in spans[:2] if kept is None else [kept]:
                shown[watch] += wanted(span, watch)
                watch.position = span.batch.next_offset
            if kept is None and not spans:
                await watches.wait(watch, 0.02)

    async def work(watches: TableWatches, nursery: trio.Nursery) -> None:
        sizes = [draw.randint(1, 4) for _ in range(60)]
        keys = [bytes(draw.choices(b"abc", k=draw.randint(1, 3))) for _ in range(sum(sizes))]
        for _ in range(8):
            watch = KeyWatch(bytes(draw.choices(b"abc", k=draw.randint(0, 3))), Offset(draw.randint(0, 20)))
            nursery.start_soon(follow, watches, watch, len(keys))
        for size in sizes:
            begin = log[-1].next_offset if log else 0
            batch = batch_at(begin, keys[begin : begin + size])
            log.append(batch)
            if draw.random() < 0.9:
                watches.applied(batch)
            else:
                watches.wake()
            await trio.sleep(draw.choice([0, 0, 0.001, 0.005]))
        with trio.move_on_after(10):
            while any(watch.position < len(keys) for watch in shown):  # noqa: ASYNC110 - it sets no event
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
        for watch, offsets in shown.items():
            found = [at for at, key in enumerate(keys) if key.startswith(watch.prefix) and at >= watch.first]
            assert offsets == found

    with_watches(work)
    assert len(shown) == 8
