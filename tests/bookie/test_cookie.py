from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio

from gnomon.bookie.errors import ForeignDisk, NotEnoughBookies
from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import OpenMode, create_ledger, open_ledger
from gnomon.bookie.local_bookie import LocalBookie
from gnomon.bookie.registration import COOKIES
from gnomon.bookie.storage.cookie import check_cookie
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.older_copy import OlderCopy
from gnomon.testing.storms.ledgers.bookies_at_hand import BookiesAtHand

NAME = BookieId("b0")


def test_a_disk_keeps_its_cookie(environment: Any, make_metadata: Any) -> None:
    async def main() -> None:
        metadata = make_metadata()
        for _ in range(2):
            assert (await check_cookie(metadata, environment, NAME, random.Random(1))).lost is None
        assert metadata.writes == 1

    trio.run(main)


def test_a_new_disk_under_an_old_name_may_have_lost_entries(
    tmp_path: Path, environment: Any, clock: Any, make_environment: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        metadata = make_metadata()
        await check_cookie(metadata, environment, NAME, random.Random(1))
        ledger = await create_ledger(
            metadata, BookiesAtHand({NAME: LocalBookie(EntryStore(environment, clock))}, clock), "ledger"
        )
        await ledger.add([b"payload"])
        wiped = make_environment(tmp_path / "wiped")
        for _ in range(2):
            why = (await check_cookie(metadata, wiped, NAME, random.Random(2))).lost
            assert why is not None
        store = EntryStore(wiped, clock, may_have_lost=OlderCopy(why, ledger.id))
        with pytest.raises(NotEnoughBookies, match="another disk"):
            await open_ledger(
                metadata, BookiesAtHand({NAME: LocalBookie(store)}, clock), "ledger", mode=OpenMode.O_APPEND
            )
        wiped.environment.close()

    trio.run(main)


def test_the_disk_of_another_bookie_is_refused(
    tmp_path: Path, environment: Any, make_environment: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        metadata = make_metadata()
        other = make_environment(tmp_path / "other")
        await check_cookie(metadata, environment, NAME, random.Random(1))
        await check_cookie(metadata, other, BookieId("b1"), random.Random(2))
        with pytest.raises(ForeignDisk):
            await check_cookie(metadata, other, NAME, random.Random(1))
        other.environment.close()

    trio.run(main)


def test_metadata_without_the_cookie_of_a_disk_with_entries_is_refused(
    environment: Any, clock: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        metadata = make_metadata()
        await check_cookie(metadata, environment, NAME, random.Random(1))
        del metadata.keys[COOKIES + NAME]
        assert (await check_cookie(metadata, environment, NAME, random.Random(2))).lost is None, (
            "it was empty: no harm done"
        )
        ledger = await create_ledger(
            metadata, BookiesAtHand({NAME: LocalBookie(EntryStore(environment, clock))}, clock), "ledger"
        )
        await ledger.add([b"payload"])
        del metadata.keys[COOKIES + NAME]
        with pytest.raises(ForeignDisk, match="restore"):
            await check_cookie(metadata, environment, NAME, random.Random(3))

    trio.run(main)
