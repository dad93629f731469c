"""Pages of a bookie's store that were checked, and damaged ones (numbers: invariants of `checked_pages`)."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from damaged_pages import hide
from ledger_house import House, Run
from store_calls import LEDGER, add, fence, put_copy, read

from gnomon.bookie.errors import EntryUnknown, LedgerError, NoSuchEntry
from gnomon.bookie.ids import ANY_SESSION, EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.bookie.storage.checked_pages import Damage
from gnomon.bookie.storage.entry_store import DATABASES, EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.bookie.storage.page_walk import DAMAGED_FILE, walk_pages
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.metadata.client import Revision
from gnomon.runtime.logs import configure_logs
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import DiskFull, Durability, StoreReadOnly

ENTRIES = 600
OTHERS = tuple(LedgerId(LEDGER + number) for number in (-2, -1, 1, 2))
Opened = Callable[..., EntryStore]


@pytest.fixture
def opened(tmp_path: Path, clock: Any, make_environment: Any) -> Any:
    """Opens a store with five ledgers again, after damage to the leaf page that has an entry."""
    environments: list[Any] = []

    def store_of(entry: int | None = None, ledger: LedgerId = LEDGER, lost: int = 1) -> EntryStore:
        path = tmp_path / f"store-{len(environments)}"
        before = make_environment(path, automatic=False)
        store = EntryStore(before, clock)
        for each in (*OTHERS, LEDGER):
            for number in range(ENTRIES):
                add(store, number, ledger=each, payload=bytes(20))
        before.flush()
        before.environment.close()
        if entry is not None:
            hide(path, ledger, entry, lost)
        environment = make_environment(path, automatic=False)
        environments.append(environment)
        made = EntryStore(environment, clock)
        made.environment = environment
        return made

    yield store_of
    for environment in environments:
        environment.environment.close()


def errors_of(store: EntryStore, ledger: LedgerId = LEDGER) -> dict[int, LedgerError]:
    """The errors of reading each entry that was stored."""
    errors: dict[int, LedgerError] = {}
    with store.view() as view:
        for entry in range(ENTRIES):
            try:
                view.get(ledger, EntryId(entry), ANY_SESSION)
            except LedgerError as error:
                errors[entry] = error
    return errors


def walk(store: EntryStore) -> None:
    while not store.pages.walked:
        store.pages.walk(16)


@pytest.mark.parametrize("walked", [False, True])
def test_an_entry_that_a_damaged_page_hides_is_unknown_and_never_absent(opened: Opened, walked: bool) -> None:
    """1."""
    store = opened(ENTRIES // 2, lost=3)
    if walked:
        walk(store)
    errors = errors_of(store)
    assert [type(error) for error in errors.values()] == [EntryUnknown] * 3
    assert "bytes of nodes" in str(next(iter(errors.values())))
    with pytest.raises(NoSuchEntry):
        read(store, ENTRIES + 5, ledger=OTHERS[-1])


def test_a_range_ends_before_an_entry_that_may_be_hidden(opened: Opened) -> None:
    """1. Otherwise a reader would take the entry for one that is explicitly absent."""
    store = opened(ENTRIES // 2)
    (hidden,) = errors_of(store)
    with store.view() as view:
        entries, scanned_to = view.range(LEDGER, EntryId(0), EntryId(ENTRIES), ANY_SESSION, 1 << 20)
    assert [entry for entry, _ in entries] == list(range(hidden))
    assert scanned_to == hidden


def test_missing_entries_of_one_gap_are_looked_up_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A range of 4,096 missing entries would otherwise take a second."""
    store = opened()
    store.last_add_confirmed(LEDGER)
    asked = []
    gap = store.pages.gap
    monkeypatch.setattr(store.pages, "gap", lambda transaction, key: asked.append(key) or gap(transaction, key))
    with store.view() as view:
        assert view.range(LEDGER, EntryId(ENTRIES), EntryId(ENTRIES + 4_000), ANY_SESSION, 1 << 20)[0] == []
    assert len(asked) == 1


def test_nothing_is_looked_up_after_a_walk_over_sound_pages(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """1."""
    store = opened()
    assert not store.pages.sound
    walk(store)
    assert store.pages.sound
    monkeypatch.setattr(store.pages, "gap", None)
    with pytest.raises(NoSuchEntry):
        read(store, ENTRIES)


def test_a_ledger_whose_end_may_be_hidden_is_not_fenced_and_takes_no_entry(opened: Opened) -> None:
    """2. A recovery would close it before its end."""
    store = opened(ENTRIES - 1)
    fenced, added = fence(store, 2), add(store, ENTRIES)
    other_fenced, other_added = fence(store, 2, OTHERS[0]), add(store, ENTRIES, 2, ledger=OTHERS[0])
    store.environment.flush()
    assert isinstance(fenced[0][1], EntryUnknown)
    assert isinstance(added[0][1], StoreReadOnly)
    with pytest.raises(EntryUnknown):
        read(store, ENTRIES)
    assert other_fenced[0][0] == (ENTRIES - 1, ENTRIES - 2, 0)
    assert other_added == [(ENTRIES, None)]


def test_no_copy_is_written_to_a_damaged_page(opened: Opened) -> None:
    store = opened(ENTRIES // 2)
    (hidden,) = errors_of(store)
    refused, stored = put_copy(store, hidden, 1, 1), put_copy(store, 0, 1, 1)
    store.environment.flush()
    assert isinstance(refused[0], StoreReadOnly)
    assert stored == [None]


def test_a_walk_finds_every_damaged_page_and_the_ledgers_that_it_hides(opened: Opened) -> None:
    """3."""
    store = opened(ENTRIES // 2)
    walk(store)
    (damage,) = store.pages.damages
    assert damage.ledgers == (LEDGER, LEDGER)
    last = opened(ENTRIES - 1, ledger=OTHERS[-1])
    walk(last)
    (damage,) = last.pages.damages
    assert damage.ledgers == (OTHERS[-1], None)


def test_a_walk_goes_on_while_entries_are_added_and_removed(opened: Opened) -> None:
    """3."""
    store = opened()
    slices = 0
    while not store.pages.walked:
        store.pages.walk(5)
        add(store, ENTRIES + slices)
        store.environment.flush()
        slices += 1
    assert slices > 5
    assert store.pages.sound


async def _remove(store: EntryStore) -> None:
    await store.shrink(LEDGER, EntryId(10))


def test_nothing_is_removed_after_damage_was_found(opened: Opened) -> None:
    """LMDB merges pages when it removes entries."""
    store = opened(ENTRIES // 2)
    walk(store)
    with pytest.raises(DiskFull, match="nothing is removed"):
        trio.run(_remove, store)


def test_a_walk_names_the_damaged_page_in_the_log_and_in_a_file(tmp_path: Path) -> None:
    async def main() -> None:
        stream = io.StringIO()
        async with open_trio_world() as world:
            folder = tmp_path / "store"
            environment = world.disk.open_environment(
                folder, databases=DATABASES, map_bytes=1 << 30, durability=Durability.NONE
            )
            store = EntryStore(environment, world.clock)
            for entry in range(ENTRIES):
                add(store, entry)
            await environment.commit(lambda _: None)
            hide(folder, LEDGER, ENTRIES // 2)
            store = EntryStore(environment, world.clock)
            await walk_pages(world, store, folder, configure_logs("info", "json", stream), "look at it")
        (line,) = stream.getvalue().splitlines()
        for words in ("page_damaged", str(folder / "data.mdb"), "bytes of nodes", '"ledgers": "5"', "look at it"):
            assert words in line
        assert "(ledgers: 5)" in (folder / DAMAGED_FILE).read_text()

    with_deadline(main)


def with_deadline(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(bounded)


def test_ledgers_that_a_damaged_page_may_hide_are_reported_once(run: Run) -> None:
    async def scenario(house: House) -> None:
        for name in "abc":
            await house.create(name)
        ledgers = [LedgerId(house.metadata.keys[ledger_key(name)].create_revision) for name in "abc"]
        record = house.metadata.keys[ledger_key("b")]
        two = replace(decode_record(record.value), quorum=Quorum(2, 2, 2))
        house.metadata.keys[ledger_key("b")] = replace(record, value=two.encode())
        key = ENTRY_KEY.pack(ledgers[1], 0)
        house.store.pages.damages.append(Damage("page 9 is damaged", True, key, ENTRY_KEY.pack(ledgers[1], 5)))
        collector = GarbageCollector(house.store, house.metadata, Trusting(), house.clock, interval_seconds=60)
        await collector.collect()
        assert [key for key in house.metadata.keys if key.startswith(MISSING)] == [f"{MISSING}{ledgers[1]}"]
        del house.metadata.keys[f"{MISSING}{ledgers[1]}"]
        await collector.collect()
        assert [key for key in house.metadata.keys if key.startswith(MISSING)] == []

    run(scenario)


class Trusting:
    """Believes any metadata."""

    async def check(self, revision: Revision) -> None:
        pass
