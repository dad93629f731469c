"""Runs one state machine on its log: loads it, handles its events and deadlines, appends its records, bounds the log.

1. Records are appended in the order in which the machine decided them, and replayed to it in that order once they are
   durable.
2. After a failed append, or once another broker has claimed the log, the machine is given up. A new one is loaded from
   the log only after the outcome of every append under way is reported: the log then has all records that these appends
   will ever leave in it.
3. Every request is handled or refused, once.
4. A reply or an effect that depends on records leaves after all of them are durable. If it never becomes known that
   they are, the reply becomes a refusal and the effect is dropped.
5. While the machine drains (the broker is about to stop), no request waits for other requests, and no deadline is kept.
6. After its release (another broker leads the partition) the machine handles nothing: waiting requests are refused, and
   the outcomes of appends under way are ignored.
7. A request of `submit_confirmed` is handled only after the log has confirmed that no other broker has written to it.
   The confirmation begins after the submission and, if the machine is not loaded yet, after the loading.
8. Once the records after the last snapshot exceed both twice its size and SNAPSHOT_BYTES_MIN, a new snapshot is
   appended, one part in a turn of the event loop. When it is durable, the log before it is deleted (but nothing happens
   if the snapshot is empty).
9. After `load` was called, the machine is loaded again LOAD_AGAIN_SECONDS after each failure, or with the next request,
   until it drains or is released. Without the pause, a machine that appends whenever it is loaded would load without
   end while its log can be read and refuses appends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Generic, TypeAlias

from gnomon.broker.coordination.state_log import AppendDone, LogUnavailable, NotLogLeader, StateLog, StateLogs
from gnomon.broker.coordination.state_machine import (
    Append,
    Decision,
    Effect,
    Encoded,
    HeldReply,
    Record,
    RecordDamaged,
    Refusal,
    Request,
    StateMachine,
)
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock

WAITING_MAX = 10_000
"""Requests that may wait for one machine to be loaded; further ones are refused."""
SNAPSHOT_BYTES_MIN = 4 << 20
"""Growth of a log up to this is never worth a snapshot."""
SNAPSHOT_BATCH_BYTES = 256 << 10
APPEND_BATCH_BYTES = 32 << 20
"""A longer append is cut into batches of this size plus one record: a record must be far below the log's bound."""
LOAD_AGAIN_SECONDS = 1.0
"""The pause after a failure before a machine is loaded again without a request."""

Refuse: TypeAlias = Callable[[Refusal], None]


class HostedMachine(Generic[Request, Record, Effect]):
    """One partition's machine, live.

    Args:
        partition: the number of the partition.
        logs: opens the machine's log.
        new_machine: makes an empty machine.
        execute: carries out an effect; must not raise, and does not wait.
        clock: of the world.
        timers: of the node, running.
        tasks: holds the loading.
        logger: of the tenant.
    """

    def __init__(
        self,
        partition: int,
        logs: StateLogs,
        new_machine: Callable[[], StateMachine[Request, Record, Effect]],
        execute: Callable[[Effect], None],
        clock: Clock,
        timers: Timers,
        tasks: Tasks,
        logger: Logger,
    ) -> None:
        self._partition = partition
        self._logs = logs
        self._new_machine = new_machine
        self._execute = execute
        self._clock = clock
        self._timers = timers
        self._tasks = tasks
        self._logger = logger.bind(partition=partition)
        self._machine: StateMachine[Request, Record, Effect] | None = None
        self._make = new_machine
        """Makes the next machine: a successor of the one that was given up, or a new one."""
        self._log: StateLog | None = None
        self._unasked = False
        self._loading = False
        self._draining = False
        self._released = False
        self._waiting: deque[tuple[Callable[[StateMachine[Request, Record, Effect]], None], Refuse]] = deque()
        self._pending: deque[Append[Record, Effect]] = deque()
        """Appends of the machine that are not durable yet."""
        self._under_way = 0
        """Batches that were not reported yet, those of machines that were given up among them."""
        self._timer: Timer | None = None
        self._load_timer: Timer | None = None
        self._grown_bytes = 0
        self._snapshot_bytes = 0
        self._snapshotting = False

    @property
    def machine(self) -> StateMachine[Request, Record, Effect] | None:
        """The machine, None while it is not loaded."""
        return self._machine

    def submit(self, request: Request, refuse: Refuse) -> None:
        """Gives the machine a request, now or once it is loaded; calls `refuse` with a reason if it is not handled."""
        self._when_loaded(lambda machine: self._handle(machine, request), refuse)

    def submit_confirmed(self, request: Request, refuse: Refuse) -> None:
        """`submit` for a request whose reply must not be older than the log: first confirms that this broker leads."""
        self._when_loaded(lambda machine: self._confirm(machine, request, refuse), refuse)

    def load(self) -> None:
        """Loads the machine without a request, and again after each failure (invariant 9)."""
        self._unasked = True
        self._load_if_wanted()

    def drain(self) -> None:
        """The broker is about to stop: requests that wait for other requests are refused, now and from now on.

        Requests that wait for the log or for the loading are answered as usual. Durable state stays as it is.
        """
        self._draining = True
        self._unasked = False
        if self._machine is not None:
            self._carry_out(self._machine, Decision())

    def release(self) -> None:
        """Another broker leads the partition: all waiting requests are refused."""
        self._released = True
        self._unasked = False
        waiting, self._waiting = self._waiting, deque()
        for _, refuse in waiting:
            refuse(Refusal.NOT_LEADER)
        if self._machine is not None:
            self._logger.debug("machine_released")
            self._dispose(self._machine, Refusal.NOT_LEADER)

    def _when_loaded(self, use: Callable[[StateMachine[Request, Record, Effect]], None], refuse: Refuse) -> None:
        if self._released:
            refuse(Refusal.NOT_LEADER)
        elif self._machine is not None and not self._waiting:
            use(self._machine)
        elif len(self._waiting) >= WAITING_MAX:
            refuse(Refusal.LOADING)
        else:
            self._waiting.append((use, refuse))
            self._load_if_wanted()

    def _confirm(self, machine: StateMachine[Request, Record, Effect], request: Request, refuse: Refuse) -> None:
        log = self._log
        assert log is not None

        def confirmed(certain: bool) -> None:
            if certain:
                self.submit(request, refuse)
                return
            refuse(Refusal.NOT_LEADER)
            if self._machine is machine and not log.goes_on():
                self._give_up(machine, _CLAIMED)

        log.confirm(confirmed)

    # Loading

    def _load_if_wanted(self) -> None:
        wanted = self._waiting or (self._unasked and self._load_timer is None)
        if wanted and not self._loading and self._machine is None and not self._under_way:
            self._loading = True
            self._tasks.start_soon(self._load)

    async def _load(self) -> None:
        machine, read_bytes = self._make(), 0
        try:
            log = await self._logs.open(self._partition)
            async with aclosing(log.read_all()) as stored_records:
                async for stored in stored_records:
                    record = machine.decode(stored)
                    if record is not None:
                        machine.replay(record)
                    read_bytes += len(stored.key) + len(stored.value or b"")
        except (LogUnavailable, RecordDamaged) as error:
            self._load_failed(error)
            return
        self._loading = False
        if self._released:
            return
        self._logger.debug("machine_loaded", bytes=read_bytes)
        self._machine, self._log, self._make = machine, log, self._new_machine
        self._grown_bytes, self._snapshot_bytes, self._snapshotting = read_bytes, 0, False
        self._carry_out(machine, machine.loaded(self._clock.monotonic(), self._clock.wall_ms()))
        # Requests that are submitted meanwhile queue after those that wait: a client's requests keep their order.
        while self._waiting and self._machine is machine:
            use, _ = self._waiting.popleft()
            use(machine)
        self._load_if_wanted()

    def _load_failed(self, error: Exception) -> None:
        self._logger.warning("machine_not_loaded", reason=str(error))
        self._loading = False
        waiting, self._waiting = self._waiting, deque()
        for _, refuse in waiting:
            refuse(_refusal(error))
        self._load_later()

    def _load_later(self) -> None:
        """After a failure: loads at once if requests wait, otherwise after a pause (invariant 9)."""
        if self._unasked and self._load_timer is None:
            self._load_timer = self._timers.call_at(self._clock.monotonic() + LOAD_AGAIN_SECONDS, self._load_again)
        self._load_if_wanted()

    def _load_again(self) -> None:
        self._load_timer = None
        self._load_if_wanted()

    # Running

    def _handle(self, machine: StateMachine[Request, Record, Effect], request: Request) -> None:
        self._carry_out(machine, machine.handle(request, self._clock.monotonic(), self._clock.wall_ms()))

    def _carry_out(self, machine: StateMachine[Request, Record, Effect], decision: Decision[Record, Effect]) -> None:
        # All appends first: a reply may bring the next request, whose records come after these.
        for append in decision.appends:
            self.append(machine, append)
        if self._grown_bytes > max(SNAPSHOT_BYTES_MIN, 2 * self._snapshot_bytes) and not self._snapshotting:
            self._snapshot(machine)
        let_go: Sequence[HeldReply] = ()
        if self._draining:
            self._disarm()
            let_go = machine.let_go(Refusal.NOT_LEADER, self._clock.monotonic(), self._clock.wall_ms())
        else:
            self._arm(machine)
        for effect in decision.effects:
            self._execute(effect)
        for reply in (*decision.replies, *let_go):
            reply.send()

    def append(self, machine: StateMachine[Request, Record, Effect], append: Append[Record, Effect]) -> None:
        """Writes the records of an append to the log; its replies and effects wait until all are durable."""
        assert append.records, "an append has at least one record"
        batches = _batches((record.encoded() for record in append.records), APPEND_BATCH_BYTES)
        missing = len(batches)
        self._pending.append(append)

        def done(base_offset: int | None, error: LogUnavailable | None) -> None:
            nonlocal missing
            if self._reported(machine, error):
                missing -= 1
                if not missing:
                    self._durable(machine)

        for batch in batches:
            self._write(batch, done)

    def _durable(self, machine: StateMachine[Request, Record, Effect]) -> None:
        """All records of the oldest pending append are durable."""
        append = self._pending.popleft()
        for record in append.records:
            machine.replay(record)
        decision = machine.applied(self._clock.monotonic(), self._clock.wall_ms())
        decision.replies[:0] = append.replies
        decision.effects[:0] = append.effects
        self._carry_out(machine, decision)

    def _write(self, records: list[Encoded], done: AppendDone) -> None:
        assert self._log is not None
        self._under_way += 1
        self._grown_bytes += _size(records)
        self._log.append(records, done)

    def _reported(self, machine: StateMachine[Request, Record, Effect], error: LogUnavailable | None) -> bool:
        """Notes the end of a batch; returns whether the batch is durable and its machine is still in use."""
        self._under_way -= 1
        if self._machine is not machine:
            self._load_if_wanted()
            return False
        if error is not None:
            self._give_up(machine, error)
            return False
        return True

    def _give_up(self, machine: StateMachine[Request, Record, Effect], error: LogUnavailable) -> None:
        self._logger.warning("machine_not_stored", reason=str(error), next="it is loaded again from its log")
        # Soft state is outdated once another broker has served the log.
        self._make = self._new_machine if error is _CLAIMED else machine.successor(self._clock.monotonic())
        self._dispose(machine, _refusal(error))
        self._load_later()

    def _dispose(self, machine: StateMachine[Request, Record, Effect], refusal: Refusal) -> None:
        self._machine = self._log = None
        self._disarm()
        pending, self._pending = self._pending, deque()
        parked = machine.failed(refusal)
        for append in pending:
            for reply in append.replies:
                reply.refuse(refusal)
        for reply in parked:
            reply.send()

    # Deadlines

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, machine: StateMachine[Request, Record, Effect]) -> None:
        deadline = machine.next_deadline()
        if self._timer is not None:
            if self._timer.deadline <= deadline:
                return  # it fires early and is set again then: cheaper than moving it with every request
            self._timer.cancel()
        self._timer = self._timers.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        machine = self._machine
        assert machine is not None
        self._carry_out(machine, machine.tick(self._clock.monotonic(), self._clock.wall_ms()))

    # Snapshots

    def _snapshot(self, machine: StateMachine[Request, Record, Effect]) -> None:
        """Appends the live state, then trims the log before it."""
        self._snapshotting = True
        self._grown_bytes = 0
        self._tasks.start_soon(self._write_snapshot, machine)

    async def _write_snapshot(self, machine: StateMachine[Request, Record, Effect]) -> None:
        first_offset: int | None = None
        missing = 1  # the end of the parts

        def came() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                self._snapshotting = False
                if first_offset is not None and self._log is not None:
                    self._log.trim(first_offset)

        def done(base_offset: int | None, error: LogUnavailable | None) -> None:
            nonlocal first_offset
            if self._reported(machine, error):
                assert base_offset is not None
                first_offset = base_offset if first_offset is None else min(first_offset, base_offset)
                came()

        parts = machine.snapshot(lambda: pending_records(self._pending))
        snapshot_bytes = 0
        while self._machine is machine:
            part = next(parts, None)  # appended in the same turn: records that are appended later may change its keys
            if part is None:
                self._snapshot_bytes = snapshot_bytes
                came()
                return
            for batch in _batches((record.encoded() for record in part), SNAPSHOT_BATCH_BYTES):
                missing += 1
                self._write(batch, done)
                snapshot_bytes += _size(batch)
                self._grown_bytes -= _size(batch)
            await self._clock.sleep(PAUSE_SECONDS)


def pending_records(appends: Iterable[Append[Record, Effect]]) -> list[Record]:
    """The records of pending appends, in order: a snapshot of the machine contains them."""
    return [record for append in appends for record in append.records]


_CLAIMED = NotLogLeader("another broker has claimed the log since it was read")


def _refusal(error: Exception) -> Refusal:
    return Refusal.NOT_LEADER if isinstance(error, NotLogLeader) else Refusal.UNAVAILABLE


def _size(records: list[Encoded]) -> int:
    return sum(len(key) + len(value or b"") for key, value in records)


def _batches(records: Iterable[Encoded], batch_bytes: int) -> list[list[Encoded]]:
    """The records in batches of `batch_bytes` and at most one record more."""
    batches: list[list[Encoded]] = []
    room = 0
    for record in records:
        if room <= 0:
            batches.append([])
            room = batch_bytes
        batches[-1].append(record)
        room -= _size([record])
    return batches
