"""Follows the keys below a prefix: reads them once, then applies the changes from a watch.

The owner of a follower gives it two callbacks, `replace` and `apply`.

1. `replace` receives all keys as of one revision. After it, `apply` receives the changes of each later revision that
   changed a key, in order, each once.
2. If the changes of a revision are no longer available (`HistoryCompacted`), all keys are read again, and `replace`
   receives them.
3. Following continues after any failure of the metadata service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

from gnomon.metadata.client import HistoryCompacted, Metadata, MetadataError, RangeResult, Revision, WatchBatch
from gnomon.runtime.logs import Logger
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock

RETRY_SECONDS = 0.5


class Follower:
    """One prefix; `run` follows it."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        log: Logger,
        prefix: str,
        replace: Callable[[RangeResult], None],
        apply: Callable[[WatchBatch], None],
        replaced: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Knows nothing before `load`.

        Args:
            replaced: a third callback, awaited after each `replace`; if it raises a MetadataError within `run`, all
                keys are read again.
        """
        self.revision = Revision(0)
        """The revision up to which `replace` and `apply` have received everything."""
        self.following = False
        """Whether a watch is under way; it may wait for an unreachable metadata service."""
        self._metadata = metadata
        self._clock = clock
        self._log = log.bind(prefix=prefix)
        self._prefix = prefix
        self._replace = replace
        self._apply = apply
        self._replaced = replaced
        self._moved = Signal()

    async def load(self) -> None:
        """Reads all keys: costs one metadata read, and the reads of `replaced`.

        Raises:
            MetadataUnavailable: the keys could not be read.
        """
        found = await self._metadata.range(self._prefix)
        self._replace(found)
        if self._replaced is not None:
            await self._replaced()
        self._move(found.revision)

    async def run(self) -> NoReturn:
        """Applies changes after `load`, until cancelled."""
        while True:
            try:
                async with self._metadata.watch(self._prefix, Revision(self.revision + 1)) as batches:
                    self.following = True
                    async for batch in batches:
                        self._apply(batch)
                        self._move(batch.revision)
            except HistoryCompacted:
                self.following = False
                await self._load_again()
            except MetadataError as error:
                await self._failed(error)

    async def _load_again(self) -> None:
        try:
            await self.load()
        except MetadataError as error:
            await self._failed(error)

    async def _failed(self, error: MetadataError) -> None:
        self.following = False
        self._log.warning("not_followed", reason=str(error), next=f"again in {RETRY_SECONDS} s")
        await self._clock.sleep(RETRY_SECONDS)

    def _move(self, revision: Revision) -> None:
        self.revision = revision
        self._moved.notify()

    async def moved(self) -> None:
        """Waits until a change has been applied."""
        await self._moved.wait()

    async def reached(self, revision: Revision) -> None:
        """Waits until everything up to a revision that changed a key here has been applied."""
        while self.revision < revision:
            await self.moved()
