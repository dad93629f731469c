"""ReadIndex: which requests share a read of the metadata, and the answers while the metadata service is silent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.bookie.errors import LedgerFenced
from gnomon.broker.partition.read_index import ANSWER_SECONDS, ReadIndex
from gnomon.runtime.trio_world import TrioClock


class Asked:
    """A chain whose answer a test releases."""

    def __init__(self) -> None:
        self.segments: list[object] = []
        self.answered = trio.Event()
        self.ours = True
        self.claimed_since: list[object] = []

    async def is_ours(self, segment: object) -> bool:
        self.segments.append(segment)
        await self.answered.wait()
        if not self.ours:
            raise LedgerFenced("another writer has it")
        return True

    def told(self, segment: object, error: LedgerFenced) -> None:
        self.claimed_since.append(segment)


def with_read_index(work: Callable[[Any, ReadIndex], Awaitable[None]]) -> None:
    async def main() -> None:
        chain: Any = Asked()
        async with trio.open_nursery() as nursery:
            await work(chain, ReadIndex(chain, TrioClock(), nursery, lambda: None, chain.told))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("ours", [True, False])
def test_one_read_of_the_metadata_serves_all_requests_before_it(ours: bool) -> None:
    async def work(chain: Any, read_index: ReadIndex) -> None:
        told: list[tuple[str, bool]] = []
        segment: Any = object()

        def tell(name: str, certain: bool) -> None:
            told.append((name, certain))

        read_index.confirm(segment, partial(tell, "first"))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("second", "third"):
            read_index.confirm(segment, partial(tell, name))
        assert told == []
        chain.ours = ours
        chain.answered.set()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [("first", ours), ("second", ours), ("third", ours)]
        assert chain.segments == [segment] * 2
        assert chain.claimed_since == ([] if ours else chain.segments)

    with_read_index(work)


def test_nothing_is_confirmed_for_an_earlier_segment_or_while_the_metadata_service_does_not_answer() -> None:
    async def work(chain: Any, read_index: ReadIndex) -> None:
        told: list[tuple[str, bool]] = []
        before: Any = object()
        last: Any = object()

        def tell(name: str, certain: bool) -> None:
            told.append((name, certain))

        read_index.confirm(last, partial(tell, "unanswered"))
        await trio.sleep(ANSWER_SECONDS + 0.1)
        assert told == [("unanswered", False)]
        chain.answered.set()
        read_index.confirm(before, partial(tell, "before"))
        read_index.confirm(last, partial(tell, "last"))
        await trio.testing.wait_all_tasks_blocked()
        assert told[1:] == [("before", False), ("last", True)]

    with_read_index(work)
