"""The metadata store inside this process: runs the pure state machine (`state.py`) on an LMDB environment.

The changes of the requests in one commit are a draft, which becomes the state when it is adopted.

1. One commit is under way at a time; requests that arrive meanwhile are judged together for the next commit.
2. Reads and watches see only durable state: a draft is adopted when its commit is reported done.
3. A request, even one that is refused, is answered after the commit of everything that it was judged against.
4. If the disk is full, nothing of a commit is kept: all its requests end with MetadataFull, except keep-alives, which
   still renew leases that have not ended.
5. After the device has failed a write, nothing is written any more, and `run` raises DiskFailed to stop the node.
6. A watcher owns a position and no buffer: a slow watcher costs the others nothing, and at worst gets
   `HistoryCompacted`.
7. A request is judged as of the time it was made, and the time of a lease begins with the answer that grants or renews
   it. So a slow disk never ends a lease that was kept alive in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import trio

from gnomon.metadata import records
from gnomon.metadata.client import (
    Compare,
    KeyValue,
    LeaseId,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
    Operation,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.draft import Draft
from gnomon.metadata.request import Compact, Grant, KeepAlive, Reply, Request, Revoke, Tick, Txn
from gnomon.metadata.sealed import ADVICE, DamagedStore, Unsealing, unseal, write_all
from gnomon.metadata.state import HISTORY_REVISIONS, State
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import DiskFailed, DiskFull, Environment, World, WorldError

DATABASES = records.DATABASES
"""The named databases that the environment must be opened with; it may contain others as well."""

REQUESTS_PER_COMMIT_MAX = 50
"""All callers of a commit go on in one turn of the event loop: the opening of so many partitions takes 4 to 8 ms of it.
4,000 openings take 1.8 s, and 1.7 s with 1,000 requests in a commit."""
_DISK_FULL_RETRY_SECONDS = 1.0
# A deadline closer than the clock's resolution would be awaited without any time passing.
_EXPIRY_GRAIN_SECONDS = 0.001


class PendingCommit:
    """A request, its time, and the place for its one answer."""

    __slots__ = ("answered", "asked", "reply", "request")

    def __init__(self, request: Request, asked: float) -> None:
        self.request = request
        self.asked = asked
        self.reply: Reply = None
        self.answered = trio.Event()

    def answer(self, reply: Reply) -> None:
        """Gives the caller its reply."""
        self.reply = reply
        self.answered.set()


class EmbeddedMetadata:
    """A `Metadata` in this process; made by `open`, driven by `run`."""

    def __init__(self, world: World, environment: Environment, state: State) -> None:
        self._clock = world.clock
        self._environment = environment
        self._state = state
        self._queue: deque[PendingCommit] = deque()
        self._committing = False
        self._failure: DiskFailed | None = None
        self._closed = False
        self.requests = 0
        """The requests so far, without watches."""
        self._published = Signal()
        self._stirred = Signal()

    @classmethod
    async def open(
        cls, world: World, environment: Environment, *, history_revisions: int = HISTORY_REVISIONS
    ) -> EmbeddedMetadata:
        """Loads the store, or initializes a new environment.

        Args:
            environment: opened with (at least) `DATABASES`; the caller owns it, and closes it after `close`.
            history_revisions: the number of revisions that a watch can go back.

        Raises:
            records.NewerFormat, records.UnreadableRecord: this gnomon cannot read the store.
            DamagedRecord, DamagedStore: the store is damaged.
            DiskFull, DiskFailed: a new or shortened store could not be written.
        """
        if _is_old(environment):
            await environment.commit(lambda transaction: _convert(transaction, environment.databases))
        state, repair = _load(environment, world.clock.monotonic(), history_revisions)
        if repair:
            await environment.commit(_writing(environment, repair))
        return cls(world, environment, state)

    async def run(self) -> None:
        """Ends due leases, until it is cancelled or the store closed. Run it beside the store's users.

        Cancelling it closes the store: end its users first.

        Raises:
            DiskFailed: the device failed a write: the node must stop.
        """
        try:
            while not self._closed and self._failure is None:
                self._stirred.clear()
                left = self._state.next_deadline - self._clock.monotonic()
                with trio.move_on_after(max(left, _EXPIRY_GRAIN_SECONDS)):
                    await self._stirred.wait()
                if self._state.next_deadline <= self._clock.monotonic():
                    await self._end_due_leases()
        finally:
            self.close()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Answers waiting requests with MetadataUnavailable; the environment still finishes a commit under way."""
        self._closed = True
        self._refuse_waiting()
        self._publish()
        self._stirred.set()

    async def get(self, key: str) -> KeyValue | None:
        """See `Metadata.get`."""
        self.requests += 1
        await trio.lowlevel.checkpoint()
        self._check_open()
        return self._state.get(key)

    async def range(self, prefix: str) -> RangeResult:
        """See `Metadata.range`."""
        self.requests += 1
        await trio.lowlevel.checkpoint()
        self._check_open()
        return self._state.range(prefix)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        """See `Metadata.txn`; after a cancellation the outcome is unknown."""
        reply = await self._ask(Txn(tuple(compare), tuple(then), tuple(otherwise)))
        assert isinstance(reply, TxnOutcome)
        return reply

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """See `Metadata.watch`; the iterator raises MetadataUnavailable once the store is closed."""
        return self._watch(prefix, from_revision)

    async def lease(self, ttl_seconds: float) -> LeaseId:
        """See `Metadata.lease`; a restart of the store gives every lease its full time again."""
        reply = await self._ask(Grant(ttl_seconds))
        assert isinstance(reply, int)
        return LeaseId(reply)

    async def keep_alive(self, lease: LeaseId) -> None:
        """See `Metadata.keep_alive`; costs no commit."""
        await self._ask(KeepAlive(lease))

    async def revoke(self, lease: LeaseId) -> None:
        """See `Metadata.revoke`."""
        await self._ask(Revoke(lease))

    async def compact(self, revision: Revision) -> None:
        """See `Metadata.compact`."""
        await self._ask(Compact(revision))

    @asynccontextmanager
    async def _watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        yield _Watcher(self, prefix, from_revision)

    async def next_batch(self, prefix: str, from_revision: Revision) -> tuple[WatchBatch, Revision]:
        """As `State.next_batch`, but waits if there is no batch yet; a cancelled call loses nothing."""
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            batch, from_revision = self._state.next_batch(prefix, from_revision)
            if batch is not None:
                return batch, from_revision
            await self._published.wait()

    async def _ask(self, request: Request) -> Reply:
        self.requests += 1
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        pending = PendingCommit(request, self._clock.monotonic())
        self._queue.append(pending)
        self._start_commits()
        await pending.answered.wait()
        if isinstance(pending.reply, MetadataError):
            raise pending.reply
        return pending.reply

    async def _end_due_leases(self) -> None:
        try:
            await self._ask(Tick())
        except MetadataFull:
            await self._clock.sleep(_DISK_FULL_RETRY_SECONDS)
        except MetadataUnavailable:
            pass  # `run` sees the reason in its next round

    def _check_open(self) -> None:
        if self._closed:
            raise MetadataUnavailable("the metadata store is closed: this node is stopping, ask another one")
        if self._failure is not None:
            raise _unavailable(self._failure)

    def _start_commits(self) -> None:
        """Judges the waiting requests and passes them to the disk, unless a commit is under way (invariant 1)."""
        while self._queue and not self._committing:
            draft = Draft(self._state)
            judged: list[tuple[PendingCommit, Reply]] = []
            while self._queue and len(judged) < REQUESTS_PER_COMMIT_MAX:
                pending = self._queue.popleft()
                judged.append((pending, draft.apply(pending.request, pending.asked)))
            changes = draft.changes()
            if changes is None:
                self._finish(draft, judged)
                continue
            self._committing = True
            self._environment.submit(
                _writing(self._environment, records.writes(changes)),
                partial(self.committed, draft, judged),
            )

    def committed(
        self, draft: Draft, judged: list[tuple[PendingCommit, Reply]], _result: None, error: WorldError | None
    ) -> None:
        """Adopts a draft whose commit is durable, or drops it with its requests (invariants 2 to 5)."""
        self._committing = False
        if error is None:
            self._finish(draft, judged)
        elif isinstance(error, DiskFull):
            self._full(judged, error)
        else:
            assert isinstance(error, DiskFailed), error
            self._failure = error
            for pending, _ in judged:
                pending.answer(_unavailable(error))
            self._refuse_waiting()
            self._publish()
            self._stirred.set()
        self._start_commits()

    def _full(self, judged: list[tuple[PendingCommit, Reply]], error: DiskFull) -> None:
        """Answers the requests of a draft that was not kept; keep-alives still renew live leases.

        A due lease needs space to end: without this exception it would keep all others from being renewed.
        """
        now = self._clock.monotonic()
        for pending, _ in judged:
            request = pending.request
            if isinstance(request, KeepAlive) and self._state.renew(request.lease, pending.asked, now):
                pending.answer(None)
            else:
                pending.answer(MetadataFull(f"nothing was applied: {error}"))

    def _finish(self, draft: Draft, judged: list[tuple[PendingCommit, Reply]]) -> None:
        self._state.adopt(draft, self._clock.monotonic())
        if draft.leases:
            self._stirred.set()
        if draft.batches:
            self._publish()
        for pending, reply in judged:
            pending.answer(reply)

    def _refuse_waiting(self) -> None:
        while self._queue:
            self._queue.popleft().answer(
                MetadataUnavailable("the metadata store stopped before this was tried: nothing was applied")
            )

    def _publish(self) -> None:
        self._published.notify()


class _Watcher:
    """A position in the history of one prefix."""

    def __init__(self, metadata: EmbeddedMetadata, prefix: str, from_revision: Revision) -> None:
        self._metadata, self._prefix, self._position = metadata, prefix, from_revision

    def __aiter__(self) -> _Watcher:
        return self

    async def __anext__(self) -> WatchBatch:
        batch, self._position = await self._metadata.next_batch(self._prefix, self._position)
        return batch


def _unavailable(failure: DiskFailed) -> MetadataUnavailable:
    return MetadataUnavailable(f"the metadata store takes no more writes, the last ones may be lost: {failure}")


def _writing(environment: Environment, writes: Sequence[records.Write]) -> Any:
    """An operation for `Environment.submit` that uses nothing but its transaction."""
    return lambda transaction: write_all(transaction, environment.databases, writes)


def _load(environment: Environment, now: float, history_revisions: int) -> tuple[State, list[records.Write]]:
    """The state on disk, and the writes that are needed before the first request."""
    databases = environment.databases
    repair: list[records.Write] = []
    with environment.read() as transaction:
        form = transaction.get(records.FORMAT_KEY, db=databases[records.META])
        if form is not None:
            records.check_format(unseal(records.META, records.FORMAT_KEY, form))
        elif any(transaction.stat(databases[name])["entries"] for name in DATABASES):
            raise DamagedStore(f"the metadata has records and no format: {ADVICE}")
        else:
            repair.append(records.format_write())
        unsealing = Unsealing()
        keys, history, meta = (
            unsealing.records(name, iter(transaction.cursor(db=databases[name]))) for name in DATABASES
        )
        snapshot = records.snapshot(keys, history, meta)
        if not repair:
            unsealing.check()
    state = State(snapshot, now=now, history_revisions=history_revisions)
    if state.compacted > snapshot.compacted:
        repair.append(records.store_write(state.revision, state.compacted, state.next_lease))
        repair += records.drop_writes(range(snapshot.compacted + 1, state.compacted + 1))
    return state, repair


def _is_old(environment: Environment) -> bool:
    """Whether the store has format 1, whose records are not sealed."""
    with environment.read() as transaction:
        form = transaction.get(records.FORMAT_KEY, db=environment.databases[records.META])
        return form is not None and bytes(form) == records.FORMAT_1


def _convert(transaction: Any, databases: Mapping[str, Any]) -> None:
    """Seals the records of a store of format 1."""
    found = [
        (name, bytes(key), bytes(data)) for name in DATABASES for key, data in transaction.cursor(db=databases[name])
    ]
    for name, key, _ in found:
        transaction.delete(key, db=databases[name])
    kept = [record for record in found if record[1] != records.FORMAT_KEY]
    write_all(transaction, databases, [*kept, records.format_write()])
