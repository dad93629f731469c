"""Checks all pages of a bookie's store once after each start, at a low pace, and reports damaged ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from gnomon.bookie.storage.checked_pages import Damage
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import World

PAGES_PER_SLICE: Final = 16
"""Pages that are checked at once, in some 0.3 ms: a thread that computes for longer delays the event loop."""
SLICE_SECONDS: Final = 1 / 64
"""Pause between two slices: with it, some 4 MiB of pages are checked in a second, for 2 % of a processor."""
DAMAGED_FILE: Final = "damaged-pages"
"""Names the damaged pages, beside the file of the store; is empty or absent if none is known."""
DAMAGED_PAGES_HELP: Final = "Damaged pages of the store's file that were found since the start"
LINES_MAX: Final = 20
"""Lines of the log about damaged pages."""


async def walk_pages(world: World, store: EntryStore, folder: Path, log: Logger, advice: str) -> None:
    """Returns when every page was checked.

    Args:
        folder: of the store.
        advice: the way back from damage, for the log.
    """
    said = 0
    while not store.pages.walked:
        await world.blocking(store.pages.walk, PAGES_PER_SLICE)
        found = store.pages.damages
        if len(found) > said:
            for damage in found[said : max(said, LINES_MAX)]:
                log.error(
                    "page_damaged",
                    file=str(folder / "data.mdb"),
                    problem=damage.problem,
                    ledgers=ledgers_of(damage),
                    meaning="entries there that cannot be found are unknown, and nothing is removed from the store",
                    next=advice,
                )
            said = len(found)
            text = "".join(f"{damage.problem} (ledgers: {ledgers_of(damage)})\n" for damage in found[:LINES_MAX])
            with suppress(OSError):  # a full disk
                world.disk.write_file(folder / DAMAGED_FILE, text.encode())
        await world.clock.sleep(SLICE_SECONDS)


def ledgers_of(damage: Damage) -> str:
    """The ledgers that may have entries in a damaged page, in words."""
    if damage.ledgers is None:
        return "any"
    first, last = damage.ledgers
    return f"{first}" if first == last else f"{first} to {last}" if last is not None else f"from {first} on"
