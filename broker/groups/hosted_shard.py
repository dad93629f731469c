"""A shard on its log: loads it at first use, appends its records, keeps its deadlines, bounds its log.

1. Records are appended in the order in which the shard handed them out.
2. After a failed append, or when its log has been claimed by another, the shard is thrown away; it is loaded again
   once every append under way has been reported, so that what is read then is all there will ever be of it. Members
   that were gone by then are not waited for again.
3. Everything submitted is run or refused, once.
4. While it drains nobody is kept waiting for other members, and nothing happens because time went by.
5. Once released it runs nothing any more: what waited is refused, and what is on its way is answered as refused.
   Who asks what the log holds is answered only once it is confirmed, after the question, that nobody else has it;
   who waited for the loading too, as the log may have been open for long.
6. The log holds at most the last snapshot, twice as much again (or SNAPSHOT_BYTES_MIN) and what is on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias

from gnomon.broker.errors import KafkaError
from gnomon.broker.groups.coordinator_state import NOTHING_KNOWN, GroupShard
from gnomon.broker.groups.offsets_log import AppendDone, OffsetsLog, OffsetsLogs
from gnomon.broker.groups.records import Encoded
from gnomon.broker.groups.turn import Append, Effects
from gnomon.runtime.logs import Logger
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.schema import MalformedMessage

WAITING_MAX = 10_000
"""Requests that may wait for one shard to load; further ones are told to come back."""
SNAPSHOT_BYTES_MIN = 4 << 20
"""Growth of a log that is never worth a snapshot."""
SNAPSHOT_BATCH_BYTES = 256 << 10
APPEND_BATCH_BYTES = 32 << 20
"""More than any commit: only deletions may take several batches, and each offset is one of its own there."""

Run: TypeAlias = Callable[[GroupShard, float, int], Effects]
"""Gets the shard, monotonic seconds and wall-clock milliseconds."""
Refuse: TypeAlias = Callable[[ErrorCode], None]
Use: TypeAlias = Callable[[GroupShard], None]


class HostedShard:
    """One partition's groups, live.

    Args:
        partition: of `__consumer_offsets`.
        logs: where its log comes from.
        new_shard: makes an empty shard.
        clock: of the world.
        timers: of the node, running.
        start_soon: starts a task that may outlive the call.
        logger: of the node.
    """

    def __init__(
        self,
        partition: int,
        logs: OffsetsLogs,
        new_shard: Callable[[], GroupShard],
        clock: Clock,
        timers: Timers,
        start_soon: Callable[[Callable[[], Awaitable[None]]], None],
        logger: Logger,
    ) -> None:
        self._partition = partition
        self._logs = logs
        self._new_shard = new_shard
        self._clock = clock
        self._timers = timers
        self._start_soon = start_soon
        self._shard: GroupShard | None = None
        self._log: OffsetsLog | None = None
        self._loading = False
        self._draining = False
        self._released = False
        self._alive = NOTHING_KNOWN
        """Of the shard that was thrown away."""
        self._waiting: deque[tuple[Use, Refuse]] = deque()
        self._under_way = 0
        self._timer: Timer | None = None
        self._grown_bytes = 0
        self._snapshot_bytes = 0
        self._snapshotting = False
        self._logger = logger.bind(offsets_partition=partition)

    def submit(self, run: Run, refuse: Refuse) -> None:
        """Runs an event on the shard, now or when it has been loaded; or refuses it with the error why not."""
        self._when_loaded(lambda shard: self._run(shard, run), refuse)

    def ask(self, run: Run, refuse: Refuse) -> None:
        """`submit` for what depends on all that the log holds: it sees nothing that another broker has made old."""
        self._when_loaded(lambda shard: self._confirm(shard, run, refuse), refuse)

    def _when_loaded(self, use: Use, refuse: Refuse) -> None:
        if self._released:
            refuse(ErrorCode.NOT_COORDINATOR)
        elif self._shard is not None and not self._waiting:
            use(self._shard)
        elif len(self._waiting) >= WAITING_MAX:
            refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self._waiting.append((use, refuse))
            self._load_if_wanted()

    def _confirm(self, shard: GroupShard, run: Run, refuse: Refuse) -> None:
        log = self._log
        assert log is not None

        def confirmed(certain: bool) -> None:
            if certain:
                self.submit(run, refuse)
                return
            refuse(ErrorCode.NOT_COORDINATOR)
            if self._shard is shard and not log.goes_on():
                self._give_up(shard, _TAKEN)

        log.confirm(confirmed)

    def drain(self) -> None:
        """The broker ends: who waits for other members is told now to look for the coordinator again.

        So does Kafka's coordinator when a partition of it goes elsewhere. What waits for the log or for its loading
        is answered as ever. Groups stay as their records say: members that come back in time find themselves known.
        """
        self._draining = True
        if self._shard is not None:
            self._run(self._shard, lambda shard, now, wall_ms: Effects())

    def release(self) -> None:
        """The partition is another broker's now: whoever waits is told to look for it."""
        self._released = True
        waiting, self._waiting = self._waiting, deque()
        for _, refuse in waiting:
            refuse(ErrorCode.NOT_COORDINATOR)
        if self._shard is not None:
            self._logger.debug("groups_released")
            shard, self._shard, self._log = self._shard, None, None
            self._disarm()
            for reply in shard.failed(ErrorCode.NOT_COORDINATOR):
                reply.call.token(reply.response)

    # Loading

    def _load_if_wanted(self) -> None:
        if self._waiting and not self._loading and self._shard is None and not self._under_way:
            self._loading = True
            self._start_soon(self._load)

    async def _load(self) -> None:
        shard, grown_bytes = self._new_shard(), 0
        try:
            log = await self._logs.open(self._partition)
            async with aclosing(log.read_all()) as records:
                async for _, key, value in records:
                    shard.replay(key, value)
                    grown_bytes += len(key) + len(value or b"")
        except (KafkaError, MalformedMessage) as error:
            self._logger.warning("groups_not_loaded", reason=str(error))
            self._loading = False
            waiting, self._waiting = self._waiting, deque()
            for _, refuse in waiting:
                refuse(wire_error(error))
            return
        self._loading = False
        if self._released:
            return
        self._logger.debug("groups_loaded", bytes=grown_bytes)
        self._shard, self._log = shard, log
        self._grown_bytes, self._snapshot_bytes, self._snapshotting = grown_bytes, 0, False
        alive, self._alive = self._alive, NOTHING_KNOWN
        self._run(shard, lambda shard, now, wall_ms: shard.loaded(now, wall_ms, alive))
        # What is submitted meanwhile goes behind those who wait: a client's commits keep their order.
        while self._waiting and self._shard is shard:
            use, _ = self._waiting.popleft()
            use(shard)
        self._load_if_wanted()

    # Running

    def _run(self, shard: GroupShard, run: Run) -> None:
        effects = run(shard, self._clock.monotonic(), self._clock.wall_ms())
        # All appends first: an answer may bring the next request, whose records come after these.
        for append in effects.appends:
            self._append(shard, append)
        if self._grown_bytes > max(SNAPSHOT_BYTES_MIN, 2 * self._snapshot_bytes) and not self._snapshotting:
            self._snapshot(shard)
        if self._draining:
            self._disarm()
            clock = self._clock
            effects.replies += shard.let_go(ErrorCode.NOT_COORDINATOR, clock.monotonic(), clock.wall_ms()).replies
        else:
            self._arm(shard)
        for reply in effects.replies:
            reply.call.token(reply.response)

    def _append(self, shard: GroupShard, append: Append) -> None:
        batches = _batches([record.encoded() for record in append.records], APPEND_BATCH_BYTES)
        missing = len(batches)

        def done(base_offset: int | None, error: KafkaError | None) -> None:
            nonlocal missing
            if self._reported(shard, error):
                missing -= 1
                if not missing:
                    self._run(shard, GroupShard.appended)

        for batch in batches:
            self._write(batch, done)

    def _write(self, records: list[Encoded], done: AppendDone) -> None:
        assert self._log is not None
        self._under_way += 1
        self._grown_bytes += _size(records)
        self._log.append(records, done)

    def _reported(self, shard: GroupShard, error: KafkaError | None) -> bool:
        """Takes note of an append's end; whether it is durable and its shard still lives."""
        self._under_way -= 1
        if self._shard is not shard:
            self._load_if_wanted()
            return False
        if error is not None:
            self._give_up(shard, error)
            return False
        return True

    def _give_up(self, shard: GroupShard, error: KafkaError) -> None:
        self._logger.warning("groups_not_stored", reason=str(error), next="they are read again from their log")
        self._shard = self._log = None
        self._alive = NOTHING_KNOWN if error is _TAKEN else shard.alive(self._clock.monotonic())
        self._disarm()
        for reply in shard.failed(wire_error(error)):
            reply.call.token(reply.response)
        self._load_if_wanted()

    # Deadlines

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, shard: GroupShard) -> None:
        deadline = shard.next_deadline()
        if self._timer is not None:
            if self._timer.deadline <= deadline:
                return  # it fires early and is set again then: cheaper than moving it with every heartbeat
            self._timer.cancel()
        self._timer = self._timers.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        assert self._shard is not None
        self._run(self._shard, GroupShard.tick)

    # Snapshots

    def _snapshot(self, shard: GroupShard) -> None:
        """Appends all that is live and then trims what came before; all batches at once, so nothing comes between."""
        batches = _batches(shard.snapshot_records(), SNAPSHOT_BATCH_BYTES)
        if not batches:
            return
        self._snapshotting = True
        self._grown_bytes = 0
        first_offset: list[int] = []

        def done(base_offset: int | None, error: KafkaError | None) -> None:
            if not self._reported(shard, error):
                return
            assert base_offset is not None
            first_offset.append(base_offset)
            if len(first_offset) == len(batches):
                assert self._log is not None
                self._snapshotting = False
                self._log.trim(first_offset[0])

        for batch in batches:
            self._write(batch, done)
        self._snapshot_bytes, self._grown_bytes = self._grown_bytes, 0


_TAKEN = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "their log was claimed since it was read")


def _size(records: list[Encoded]) -> int:
    return sum(len(key) + len(value or b"") for key, value in records)


def _batches(records: list[Encoded], batch_bytes: int) -> list[list[Encoded]]:
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


def wire_error(error: Exception) -> ErrorCode:
    """What clients are told when the log fails: to look for the coordinator elsewhere, or to try again."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
