"""Whether a log has gone on at another broker, as the metadata tells it: asked before something is refused for good.

A broker that is cut off just when another one joins, or that was away, may not have heard yet that it leads no more.
That one may then have taken the log from the broker that does lead, which no news will tell: the answer does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from gnomon.bookie.errors import LedgerFenced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.segment import Segment
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.errors import ErrorCode

ANSWER_SECONDS = 1.0
"""How long the metadata may take to answer before nothing is certain."""
CONFIRMED_SECONDS = 5.0
"""Within which a reader comes again that was sent away."""
ENDS_MAX = 64


class Certainty:
    """What the metadata has confirmed of one partition."""

    def __init__(
        self,
        chain: Chain,
        clock: Clock,
        nursery: trio.Nursery,
        turn_ended: Callable[[], None],
        claimed_since: Callable[[Segment, LedgerFenced], None],
    ) -> None:
        """Nothing is confirmed yet; `claimed_since` is told of a segment that was claimed anew, before who asked is."""
        self._chain = chain
        self._clock = clock
        self._nursery = nursery
        self._turn_ended = turn_ended
        self._claimed_since = claimed_since
        self._asked: list[tuple[Segment, Callable[[bool], None]]] = []
        self._asking = False
        self._ends: dict[Offset, float] = {}
        """When a reader had asked for an offset which, as was confirmed then, the log did not reach."""

    def confirm(self, last: Segment, done: Callable[[bool], None]) -> None:
        """Has `done` called, later, with whether it is certain that `last` is the end of the log now.

        One question to the metadata does for all who asked before it.
        """
        self._asked.append((last, done))
        if not self._asking:
            self._asking = True
            self._nursery.start_soon(self._ask)

    async def _ask(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            last = asked[-1][0]
            ours = False
            try:
                with trio.move_on_after(ANSWER_SECONDS), suppress(MetadataError):
                    ours = await self._chain.is_ours(last)
            except LedgerFenced as error:
                self._claimed_since(last, error)
            for segment, done in asked:
                done(ours and segment is last)
            self._turn_ended()
        self._asking = False

    def beyond_end(self, last: Segment, offset: Offset) -> ErrorCode:
        """What is said to a reader that is ahead of the log: where the leader is, and the truth when it comes again."""
        now = self._clock.monotonic()
        if now - self._ends.pop(offset, float("-inf")) < CONFIRMED_SECONDS:
            return ErrorCode.OFFSET_OUT_OF_RANGE

        def done(certain: bool) -> None:
            if certain:
                self._ends[offset] = now
                if len(self._ends) > ENDS_MAX:
                    del self._ends[next(iter(self._ends))]

        self.confirm(last, done)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
