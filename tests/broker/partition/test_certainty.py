"""What the metadata confirms of a partition: who asks, how often, and what is said where it does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.bookie.errors import LedgerFenced
from gnomon.broker.partition.certainty import ANSWER_SECONDS, Certainty
from gnomon.runtime.trio_world import TrioClock


class Asked:
    """A chain that is asked, and answers once it is told to."""

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


def with_certainty(work: Callable[[Any, Certainty], Awaitable[None]]) -> None:
    async def main() -> None:
        chain: Any = Asked()
        async with trio.open_nursery() as nursery:
            await work(chain, Certainty(chain, TrioClock(), nursery, lambda: None, chain.told))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("ours", [True, False])
def test_one_question_does_for_all_who_asked_before_it(ours: bool) -> None:
    async def work(chain: Any, certainty: Certainty) -> None:
        told: list[tuple[str, bool]] = []
        segment: Any = object()

        def tell(name: str, certain: bool) -> None:
            told.append((name, certain))

        certainty.confirm(segment, partial(tell, "first"))
        await trio.testing.wait_all_tasks_blocked()
        for name in ("second", "third"):
            certainty.confirm(segment, partial(tell, name))
        assert told == []
        chain.ours = ours
        chain.answered.set()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [("first", ours), ("second", ours), ("third", ours)]
        assert chain.segments == [segment] * 2
        assert chain.claimed_since == ([] if ours else chain.segments)

    with_certainty(work)


def test_nothing_is_certain_of_a_segment_that_is_the_last_no_more_or_while_the_metadata_is_silent() -> None:
    async def work(chain: Any, certainty: Certainty) -> None:
        told: list[tuple[str, bool]] = []
        before: Any = object()
        last: Any = object()

        def tell(name: str, certain: bool) -> None:
            told.append((name, certain))

        certainty.confirm(last, partial(tell, "unanswered"))
        await trio.sleep(ANSWER_SECONDS + 0.1)
        assert told == [("unanswered", False)]
        chain.answered.set()
        certainty.confirm(before, partial(tell, "before"))
        certainty.confirm(last, partial(tell, "last"))
        await trio.testing.wait_all_tasks_blocked()
        assert told[1:] == [("before", False), ("last", True)]

    with_certainty(work)
