"""What a process makes of the keys below a prefix: read once, then moved on by a watch.

1. `replace` is given all keys as of one revision, `apply` each later revision that changed one, in order, once.
2. Where some were missed (a compacted history) all are read again, and what else its user reads with them.
3. Whatever becomes of the metadata service, following goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from gnomon.metadata.client import Compacted, Metadata, MetadataError, RangeResult, Revision, WatchBatch
from gnomon.runtime.logs import Logger
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
            replaced: called after each `replace`; where it raises a MetadataError, all are read again.
        """
        self.revision = Revision(0)
        """Up to which everything was given to `replace` or `apply`."""
        self.following = False
        """Whether a watch is under way; one may wait for a metadata service that is away."""
        self._metadata = metadata
        self._clock = clock
        self._log = log.bind(prefix=prefix)
        self._prefix = prefix
        self._replace = replace
        self._apply = apply
        self._replaced = replaced
        self._moved = trio.Event()

    async def load(self) -> None:
        """Reads all keys: one metadata read, and those of `replaced`.

        Raises:
            MetadataUnavailable: they could not be read.
        """
        found = await self._metadata.range(self._prefix)
        self._replace(found)
        if self._replaced is not None:
            await self._replaced()
        self._move(found.revision)

    async def run(self) -> NoReturn:
        """Follows what was loaded, until cancelled."""
        while True:
            try:
                async with self._metadata.watch(self._prefix, Revision(self.revision + 1)) as batches:
                    self.following = True
                    async for batch in batches:
                        self._apply(batch)
                        self._move(batch.revision)
            except Compacted:
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
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    async def moved(self) -> None:
        """Waits until a change has been taken over."""
        await self._moved.wait()

    async def reached(self, revision: Revision) -> None:
        """Waits until everything up to a revision that changed a key here has been taken over."""
        while self.revision < revision:
            await self.moved()
