"""The adds and promises of one bookie on their way to disk: in groups, one commit each.

A promise is the lowest session whose adds a ledger accepts.

1. Queued adds are answered in order, after their commit.
2. A promise is durable no later than the first add that was queued after it: every operation writes all promises that
   are not known to be durable.
3. When the disk is full, the queue refuses adds (`read_only` gives the reason). Once a second it accepts one, to check
   whether there is space again.
4. After a failed write `until_failed` raises DiskFailed: nothing is written any more.
5. After `close` nothing is submitted: the environment reports its last commits while it closes, and their answers may
   bring further adds. Those are not answered, because the node ends.

`EntryStore.add` queues an add itself, for speed: it appends the add to `waiting`, and submits an operation unless one
is already submitted. The operation takes the adds that wait when it runs, up to GROUP_BYTES_MAX.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import trio

from gnomon.bookie.bookie import Added
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.storage import removal
from gnomon.runtime.world import Clock, DiskFailed, DiskFull, Environment, Freeing, WorldError

RETRY_SECONDS: Final = 1.0
GROUP_BYTES_MAX = 4 << 20
"""Bytes that one operation adds, so that a transaction fits the space that its environment keeps ahead."""

T = TypeVar("T")


class _AddGroup:
    """Adds and promises that went into one commit together."""

    __slots__ = ("adds", "promises", "taken")

    def __init__(self) -> None:
        self.taken = False
        self.adds: list[tuple[tuple[bytes, bytes], EntryId, Added]] = []
        self.promises: list[tuple[LedgerId, SessionId]] = []


class AddQueue:
    """The adds of one entry store; see the module's invariants."""

    def __init__(
        self,
        environment: Environment,
        entries: Any,
        states: Any,
        clock: Clock,
        on_group: Callable[[], None] | None = None,
    ) -> None:
        """Starts empty.

        Args:
            entries, states: the store's databases in the environment.
            on_group: called when a whole group of adds was reported.
        """
        self._environment = environment
        self._entries = entries
        self._states = states
        self._clock = clock
        self._failure: DiskFailed | None = None
        self._has_failed = trio.Event()
        # The loop appends, and the thread that runs operations removes; a deque makes that safe without a lock.
        self.waiting: deque[tuple[tuple[bytes, bytes], EntryId, Added]] = deque()
        """Key and value in stored form, the entry, and the callback."""
        self.submitted = False
        """Whether an operation is under way that will take the waiting adds."""
        # Promises that are not known to be durable: every operation writes them all, only the loop changes the list.
        self._promises: list[tuple[LedgerId, SessionId]] = []
        self._retry_at = 0.0
        self.read_only: str | None = None
        """The reason why adds are refused for now, None while they are accepted."""
        self._on_group = on_group
        self._closed = False
        self.entries_added = 0
        """Entries that became durable since the start."""

    async def until_failed(self) -> NoReturn:
        """Waits for the device to fail.

        Raises:
            DiskFailed: it failed a write: the node must stop.
        """
        await self._has_failed.wait()
        assert self._failure is not None, "a store failed without an error"
        raise self._failure

    def promise(self, ledger: LedgerId, session: SessionId) -> None:
        """Queues a promise for the next operation, which the caller submits with its own work."""
        self._promises.append((ledger, session))

    def refusal(self) -> DiskFull | None:
        """The error for adds while the disk is full; None once a second, to try again."""
        if self.read_only is not None:
            now = self._clock.monotonic()
            if now < self._retry_at:
                return DiskFull(self.read_only)
            self._retry_at = now + RETRY_SECONDS
        return None

    def submit(self) -> None:
        """Submits an operation that takes the adds that wait when it runs, up to GROUP_BYTES_MAX."""
        self.submitted = True
        group = _AddGroup()
        self._submit(
            lambda transaction: self._write(group, transaction, GROUP_BYTES_MAX),
            lambda _result, error: self._written(group, error),
        )

    def _submit(self, work: Callable[[Any], T], done: Callable[[T | None, WorldError | None], None]) -> None:
        if not self._closed:
            self._environment.submit(work, done)

    def close(self) -> None:
        """Submits nothing from now on; call it before the environment is closed."""
        self._closed = True

    def after(
        self, work: Callable[[Any], T], done: Callable[[T | None, WorldError | None], None], *, small: bool = False
    ) -> None:
        """Runs `work` in one transaction with all adds and promises accepted before, of any total size.

        Args:
            small: `work` adds next to nothing; if no add waits, a full disk has space for it.
        """
        group = _AddGroup()
        alone = small and not self.waiting

        def write(transaction: Any) -> T:
            self._write(group, transaction, 0 if alone else math.inf)
            return work(transaction)

        def written(result: T | None, error: WorldError | None) -> None:
            self._written(group, error)
            done(result, error)

        self._submit(Freeing(write) if alone else write, written)

    def behind(self, done: Callable[[WorldError | None], None]) -> None:
        """Calls `done` after the answers to all earlier adds; also if the disk is full."""
        self._submit(Freeing(_nothing), lambda _result, error: done(error))

    def probe(self) -> None:
        """Checks whether there is space again, for a read-only store that gets no adds meanwhile.

        Promises that were queued when the disk was full become durable with that.
        """
        if self.read_only is not None:
            self.after(_nothing, self._probed)

    def _probed(self, _result: None, error: WorldError | None) -> None:
        if error is None:
            self.read_only = None

    # --- groups ---

    def _write(self, group: _AddGroup, transaction: Any, bytes_max: float) -> None:
        self._take(group, bytes_max)
        adds = group.adds
        group.promises = self._promises.copy()
        for ledger, session in group.promises:
            removal.save_promise(transaction, self._states, ledger, session)
        if len(adds) > 1:
            with transaction.cursor(db=self._entries) as cursor:
                cursor.putmulti([add[0] for add in adds])
        elif adds:
            key, value = adds[0][0]
            transaction.put(key, value, db=self._entries)

    def _take(self, group: _AddGroup, bytes_max: float) -> None:
        group.taken = True
        # Cleared before the waiting adds are taken: a later append sees it and submits another operation.
        self.submitted = False
        waiting, adds = self.waiting, group.adds
        left_bytes = bytes_max
        while waiting and left_bytes > 0:
            add = waiting.popleft()
            adds.append(add)
            left_bytes -= len(add[0][1])

    def _written(self, group: _AddGroup, error: WorldError | None) -> None:
        self._report(group, error)
        if self.waiting and not self.submitted:
            self.submit()  # the group was full

    def _report(self, group: _AddGroup, error: WorldError | None) -> None:
        if error is None:
            for promise in group.promises:
                if promise in self._promises:
                    self._promises.remove(promise)
            self.entries_added += len(group.adds)
            if group.adds or group.promises:
                self.read_only = None
        else:
            if not group.taken:
                self._take(group, math.inf)  # the transaction could not begin: the waiting adds are refused with it
            self._failed(error)
        for _, entry, done in group.adds:
            done(entry, error)
        self._tell_group()

    def _tell_group(self) -> None:
        if self._on_group is not None:
            self._on_group()

    def _failed(self, error: WorldError) -> None:
        if isinstance(error, DiskFull):
            self.read_only = str(error)
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        elif isinstance(error, DiskFailed) and self._failure is None:
            self._failure = error
            self._has_failed.set()


def _nothing(_transaction: Any) -> None:
    """Writes nothing, but keeps a place in the order of operations."""
