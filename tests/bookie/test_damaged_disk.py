"""An entry store whose disk is full, broken, new or damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from store_calls import LEDGER, add, fence, flip, read

from gnomon.bookie.bookie import FenceResult
from gnomon.bookie.entry import encode_entry
from gnomon.bookie.errors import DigestMismatch, EntryUnknown
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, SessionId
from gnomon.bookie.storage.entry_store import DATABASES, EntryStore
from gnomon.bookie.storage.older_copy import OlderCopy
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import DiskFailed, DiskFull, Durability


def test_a_store_that_may_have_lost_entries_never_reports_an_entry_as_absent(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock, may_have_lost=OlderCopy("the disk is new", LEDGER))
    with pytest.raises(EntryUnknown, match="the disk is new"):
        read(store, 0)


def test_a_flipped_bit_on_disk_is_an_error_and_never_data(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    add(store, 3, payload=b"payload")
    manual.flush()
    flip(manual, 3)
    with pytest.raises(DigestMismatch, match="entry 3 of ledger 5"):
        read(store, 3)


@pytest.mark.parametrize(("damaged", "confirmed"), [([], 3), ([4], 2), ([3, 4], 1), (range(5), NO_ENTRY)])
def test_the_last_add_confirmed_comes_from_the_newest_readable_entry(
    manual: Any, clock: Any, damaged: list[int], confirmed: int
) -> None:
    before = EntryStore(manual, clock)
    for entry in range(5):
        add(before, entry)
    add(before, 7, ledger=LedgerId(LEDGER - 1))
    manual.flush()
    for entry in damaged:
        flip(manual, entry)
    store = EntryStore(manual, clock)
    assert store.last_add_confirmed(LEDGER).entry == confirmed
    answers = fence(store, 2)
    manual.flush()
    assert answers == [(FenceResult(EntryId(4), EntryId(confirmed)), None)]


def test_a_full_disk_makes_the_store_read_only_until_a_later_add_succeeds(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    add(store, 0)
    manual.flush()
    manual.fault = DiskFull("no room on the device")
    refused = add(store, 1)
    manual.flush()
    assert isinstance(refused[0][1], DiskFull)
    assert store.read_only == "no room on the device"
    assert read(store, 0) == b"x"
    manual.fault = None
    early = add(store, 1)
    manual.flush()
    assert isinstance(early[0][1], DiskFull), "it tries again once a second, not with each add"
    clock.now += 1.0
    tried = add(store, 1)
    second = add(store, 2)
    manual.flush()
    assert tried == [(1, None)]
    assert isinstance(second[0][1], DiskFull)
    assert store.read_only is None


def test_a_successful_fence_also_ends_the_read_only_state(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    manual.fault = DiskFull("no room on the device")
    add(store, 0)
    manual.flush()
    assert store.read_only is not None
    manual.fault = None
    fence(store, 2)
    manual.flush()
    assert store.read_only is None
    # Otherwise the beginning of the session would be the only attempt of each second, and the add after it would always
    # be refused.
    answers = [add(store, entry, session=2) for entry in range(2)]
    manual.flush()
    assert answers == [[(0, None)], [(1, None)]]


def test_a_failed_write_stops_the_store_for_good(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    manual.fault = DiskFailed("EIO")
    first = add(store, 0)
    manual.flush()
    manual.fault = None
    second = add(store, 1)
    manual.flush()
    assert isinstance(first[0][1], DiskFailed)
    assert isinstance(second[0][1], DiskFailed)
    with pytest.raises(DiskFailed, match="EIO"):
        trio.run(store.run)


def test_a_full_map_keeps_acknowledged_entries_and_accepts_adds_after_a_removal(
    tmp_path: Path, clock: Any, make_environment: Any
) -> None:
    environment = make_environment(tmp_path / "small", map_bytes=4 << 20)
    store = EntryStore(environment, clock)

    async def main() -> None:
        stored = 0
        while store.read_only is None:
            answers = add(store, stored, payload=bytes([stored % 256]) * 65_536)
            await trio.testing.wait_all_tasks_blocked()
            stored += answers[0][1] is None
        assert stored > 40
        assert read(store, stored - 1) == bytes([(stored - 1) % 256]) * 65_536
        await store.shrink(LEDGER, EntryId(stored // 2))
        assert await store.remove(LEDGER) == stored // 2
        clock.now += 1
        answers = add(store, stored, payload=b"again" * 10_000)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [(stored, None)]

    trio.run(main)
    environment.environment.close()


def test_a_full_file_system_accepts_promises_and_accepts_adds_after_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fallocate(descriptor: int, start: int, count: int) -> None:
        if start + count > 48 << 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fallocate)

    async def stored(store: EntryStore, entry: int, ledger: LedgerId) -> None:
        at, by = EntryId(entry), SessionId(1)
        value = encode_entry(ledger, at, by, NO_ENTRY, 0, [bytes(500_000)])
        await outcome_of(lambda done: store.add(ledger, at, by, NO_ENTRY, value, lambda _, error: done(None, error)))

    async def main() -> None:
        async with open_trio_world() as world:
            environment = world.disk.open_environment(
                tmp_path / "store", databases=DATABASES, map_bytes=1 << 30, durability=Durability.NONE
            )
            store = EntryStore(environment, world.clock)
            with pytest.raises(DiskFull):  # noqa: PT012 - the disk decides which add fails
                for entry in range(100):
                    await stored(store, entry, LEDGER)
            await outcome_of(lambda done: store.fence(LEDGER, SessionId(2), done))
            await store.delete(LEDGER)
            assert await store.remove(LEDGER) == entry > 50
            store.adds.probe()
            await environment.commit(lambda _: None)
            for entry in range(20):
                await stored(store, entry, LedgerId(LEDGER + 1))

    async def bounded() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(bounded)
