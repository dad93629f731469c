from __future__ import annotations

from typing import Any

import trio

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.claim import ReadAhead
from gnomon.bookie.local_bookie import LocalBookie
from gnomon.bookie.storage.entry_store import EntryStore

LEDGER = LedgerId(5)


def test_a_copy_of_an_older_session_that_was_read_ahead_is_an_orphan_in_a_later_fragment(
    environment: Any, clock: Any
) -> None:
    store = EntryStore(environment, clock)
    copy = ReadAhead(LocalBookie(store), LEDGER)

    async def main() -> None:
        for at in range(3):
            entry = EntryId(at)
            value = encode_entry(LEDGER, entry, SessionId(1), EntryId(at - 1), at + 1, [b"x"])
            store.add(LEDGER, entry, SessionId(1), EntryId(at - 1), value, lambda _entry, _error: None)
        await trio.testing.wait_all_tasks_blocked()
        assert await copy.entry(EntryId(1), SessionId(1)) is not None
        assert await copy.entry(EntryId(2), SessionId(2)) is None
        assert await copy.entry(EntryId(2), SessionId(1)) is not None

    trio.run(main)
