"""Asks the metadata service whether this broker still holds the claim of a partition's log (ReadIndex).

A broker that is cut off may not know that it lost the leadership. A newer leader may have claimed the log
unnoticed and continued it. So a final refusal is given only after the metadata service confirms that there is no newer
claim.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from gnomon.bookie.errors import LedgerFenced
from gnomon.broker.partition.chain import Chain
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment
from gnomon.metadata.client import MetadataError
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.errors import ErrorCode

ANSWER_SECONDS = 1.0
"""Time for the metadata service to answer; after that the claim counts as not confirmed."""
CONFIRMED_SECONDS = 5.0
"""Time for which a confirmed answer about an offset is kept for the reader, which asks again within it."""
ENDS_MAX = 64
"""Maximum number of such offsets."""


class ReadIndex:
    """The confirmations of one partition's claim, requested and received."""

    def __init__(
        self,
        chain: Chain,
        clock: Clock,
        tasks: Tasks,
        turn_ended: Callable[[], None],
        claimed_since: Callable[[Segment, LedgerFenced], None],
    ) -> None:
        """Nothing is confirmed yet.

        Args:
            claimed_since: called with a segment that has a newer claim, before the callers of `confirm` are answered.
        """
        self._chain = chain
        self._clock = clock
        self._tasks = tasks
        self._turn_ended = turn_ended
        self._claimed_since = claimed_since
        self._requests: list[tuple[Segment, Callable[[bool], None]]] = []
        self._asking = False
        self._ends: dict[Offset, float] = {}
        """The offsets that are confirmed to be beyond the end of the log, with the time of the reader's request."""

    def confirm(self, last: Segment, done: Callable[[bool], None]) -> None:
        """Calls `done` later with whether it is certain that `last` is the end of the log now.

        One read of the metadata serves all requests that came before it.
        """
        self._requests.append((last, done))
        if not self._asking:
            self._asking = True
            self._tasks.start_soon(self._ask)

    async def _ask(self) -> None:
        while self._requests:
            requests, self._requests = self._requests, []
            last = requests[-1][0]
            ours = False
            try:
                with trio.move_on_after(ANSWER_SECONDS), suppress(MetadataError):
                    ours = await self._chain.is_ours(last)
            except LedgerFenced as error:
                self._claimed_since(last, error)
            for segment, done in requests:
                done(ours and segment is last)
            self._turn_ended()
        self._asking = False

    def beyond_end(self, last: Segment, offset: Offset) -> ErrorCode:
        """The answer to a reader that is ahead of the log.

        The first request is answered with NOT_LEADER_OR_FOLLOWER, which makes the client look for the leader and ask
        again. OFFSET_OUT_OF_RANGE follows once the claim is confirmed.
        """
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
