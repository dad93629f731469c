"""Replication to shadows: one replicator for each shadow and partition of the topics that this broker writes.

1. A produce never waits for replication: a confirmed entry is put on a list, which is sent at the end of the turn. If
   the last frames were sent less than PACE_SECONDS ago (LARGE_PACE_SECONDS for an entry that is too large to be sent),
   the list waits for a later entry, at most for that time and TRAILING_SECONDS. Work for a shadow is done once per
   frame, not once per entry.
2. The cost of a shadow that is away, slow or paused is bounded: a window of bytes for its broker (`protocol`), and some
   runs of ids (`outbox`). The bytes of entries are kept only for milliseconds.
3. The shadows and their leaders are always those of this broker's present image of topics and live brokers.
4. The progress of each shadow is stored, and a new or restarted owner continues from there.
5. A replicator ends with its shadow, and with the use of its source's partition on this broker. Then nothing more is
   sent for it, and no table holds it, also if its cursor is still being read.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

import trio

from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.partition.partition import Partition
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.broker.replication.cursors import ReplicatorCursors
from gnomon.broker.replication.outbox import EntryRun, ReplicatorCursor
from gnomon.broker.replication.protocol import Ack, Nack, NackReason, OpenFrame, Replicate
from gnomon.broker.replication.receiver import ReplicationReceiver
from gnomon.broker.replication.replicator import Replicator
from gnomon.broker.replication.sender import LocalSender, PeerSender, ReplicationSender
from gnomon.broker.replication.source_tail import SourceTail
from gnomon.broker.replication.stats import ReplicationStats
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.settings import ShadowReplicationSettings
from gnomon.runtime.signal import Signal
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World

PACE_SECONDS = 0.002
"""Least time between two frames to one broker, so that each of a thousand messages a second costs a part of a frame."""
LARGE_PACE_SECONDS = 0.005
"""The same for entries that are too large to be sent: their readers wait for a bookie anyway."""
TRAILING_SECONDS = 0.0005
"""Added to the pace in the timer of a waiting entry, so that mostly a later entry has both sent before it fires."""
SAMPLE_SECONDS = 1.0

_Key = tuple[uuid.UUID, int]


class ShadowReplication:
    """All replicators of one broker; `run` follows the image."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        partitions: PartitionsInUse,
        receiver: ReplicationReceiver,
        cursors: ReplicatorCursors,
        cluster_id: str,
        settings: ShadowReplicationSettings,
        world: World,
        timers: Timers,
        metrics: Metrics,
        log: Logger,
    ) -> None:
        """Nothing is replicated before `run`.

        Args:
            receiver: receives entries for the shadows that this broker leads itself.
        """
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._cursors = cursors
        self._cluster_id = cluster_id
        self._settings = settings
        self._world = world
        self._timers = timers
        self._log = log
        self._tasks = OwnTasks()
        self._tails: dict[_Key, SourceTail] = {}
        self._local = LocalSender(receiver, self)
        self._peers: dict[LiveBroker, PeerSender] = {}
        self._waiting: dict[ReplicationSender, dict[Replicator, SourceTail]] = {}
        """By sender: the replicators with unacknowledged or unsent entries, each with its tail."""
        self._due: list[SourceTail] = []
        self._sent_at = float("-inf")
        self._call_due = self._timer_due = False
        self._changed = Signal()
        self._watch_metrics(metrics)
        topics.watch(moved=self.changed)
        placement.watch(self.changed)
        partitions.watch(self.changed)

    def now(self) -> float:
        """The current monotonic second."""
        return self._world.clock.monotonic()

    def stats(self, shadow: Topic, index: int) -> ReplicationStats | None:
        """The statistics of one partition of a shadow; None if the source's partition is not in use on this broker."""
        tail = None if shadow.source is None else self._tails.get((shadow.source.id, index))
        replicator = None if tail is None else tail.replicators.get(shadow.id)
        return None if replicator is None else replicator.stats(self.now())

    def peers(self) -> list[PeerSender]:
        """The senders to other brokers that lead shadows."""
        return list(self._peers.values())

    def _all(self) -> list[Replicator]:
        return [replicator for tail in self._tails.values() for replicator in tail.replicators.values()]

    def _watch_metrics(self, metrics: Metrics) -> None:
        watch, count = metrics.watch, metrics.watch_count

        def total(of: Callable[[ReplicationStats], float]) -> Callable[[], float]:
            return lambda: sum(of(replicator.stats(self.now())) for replicator in self._all())

        def worst(of: Callable[[ReplicationStats], float]) -> Callable[[], float]:
            return lambda: max((of(replicator.stats(self.now())) for replicator in self._all()), default=0.0)

        watch("shadow_replicators", "Partitions of shadows that this broker replicates to", lambda: len(self._all()))
        watch("shadow_replicators_connected", "Those whose broker is connected", total(lambda one: one.connected))
        watch("shadow_backlog_entries", "Entries not replicated to shadows yet", total(lambda one: one.backlog_entries))
        watch("shadow_backlog_bytes", "Bytes of these", total(lambda one: one.backlog_bytes))
        watch("shadow_backlog_seconds", "The age of the oldest of these", worst(lambda one: one.backlog_seconds))
        watch("shadow_entries_per_second", "Entries replicated to shadows", total(lambda one: one.entries_per_second))
        watch("shadow_bytes_per_second", "Bytes of these", total(lambda one: one.bytes_per_second))
        count("shadow_refused", "How often shadows refused entries", total(lambda one: one.refused))
        count("shadow_resets", "How often entries were skipped", total(lambda one: one.resets))

    # --- following the image ----------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Topics, leaders or the partitions in use here have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            nursery.start_soon(self._sample_regularly)
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._follow_image()

    async def _sample_regularly(self) -> None:
        while True:
            await self._world.clock.sleep(SAMPLE_SECONDS)
            now = self.now()
            for replicator in self._all():
                replicator.sample(now)
            await self._cursors.flush(now, self._all())

    def _follow_image(self) -> None:
        image = self._topics.image
        wanted: dict[_Key, tuple[Topic, Partition]] = {}
        for source_id in image.shadowed():
            source = image.get_by_id(source_id)
            for index in range(0 if source is None else source.partitions):
                partition = self._partitions.get(source_id, index)
                if source is not None and partition is not None:
                    wanted[source_id, index] = (source, partition)
        for key, tail in list(self._tails.items()):
            if key not in wanted or wanted[key][1] is not tail.partition:
                self._drop(key, tail)
        for key, (source, partition) in wanted.items():
            tail = self._tails.get(key) or self._tail(key, source, partition)
            shadows = image.shadows_of(source)
            self._follow_shadows(tail, [shadow for shadow in shadows if key[1] < shadow.partitions])
        self._close_senders()
        self.replicate(list(self._tails.values()))

    def _tail(self, key: _Key, topic: Topic, partition: Partition) -> SourceTail:
        tail = self._tails[key] = SourceTail(self, topic, key[1], partition)
        partition.attach(tail)
        return tail

    def _drop(self, key: _Key, tail: SourceTail) -> None:
        tail.partition.attach(None)
        del self._tails[key]
        self._tasks.start_soon(self._cursors.flush, float("inf"), list(tail.replicators.values()))
        for shadow in list(tail.replicators):
            self._end(tail, shadow)

    def _follow_shadows(self, tail: SourceTail, shadows: list[Topic]) -> None:
        alive = {shadow.id for shadow in shadows}
        for gone in [shadow for shadow in tail.replicators if shadow not in alive]:
            self._end(tail, gone)
        for shadow in shadows:
            replicator = tail.replicators.get(shadow.id)
            if replicator is None:
                limit = self._settings.shadow_replicator_auto_reset_backlog_entries
                replicator = tail.replicators[shadow.id] = Replicator(shadow, tail.index, limit)
                self.start_soon(tail, replicator)
            sender = self._sender(self._placement.leader(shadow, tail.index))
            if sender is not replicator.sender:
                self._waits_no_more(replicator)
                replicator.sender = sender
                replicator.lost()

    def _end(self, tail: SourceTail, shadow: uuid.UUID) -> None:
        """Ends the replicator of a shadow (invariant 5)."""
        self._waits_no_more(tail.replicators.pop(shadow))

    def _waits_no_more(self, replicator: Replicator) -> None:
        """The sender of the replicator is about to change, or the replicator ends."""
        if replicator.sender is not None:
            self._waiting.get(replicator.sender, {}).pop(replicator, None)

    def _sender(self, leader: int) -> ReplicationSender | None:
        if leader == self._placement.node_id:
            return self._local
        peer = self._placement.broker(leader)
        if peer is None:
            return None
        if peer not in self._peers:
            self._peers[peer] = PeerSender(self._world, self._cluster_id, peer, self, self._tasks, self._log)
        return self._peers[peer]

    def _close_senders(self) -> None:
        used = {replicator.sender for replicator in self._all()}
        self._waiting = {sender: waiting for sender, waiting in self._waiting.items() if sender in used}
        for peer, sender in list(self._peers.items()):
            if sender not in used:
                del self._peers[peer]
                sender.close()

    # --- starting -------------------------------------------------------------------------------------------------

    def start_soon(self, tail: SourceTail, replicator: Replicator) -> None:
        """Starts a replicator at its stored cursor, with everything that is confirmed of the log by then."""
        self._tasks.start_soon(self._start, tail, replicator, tail.terms)

    async def _start(self, tail: SourceTail, replicator: Replicator, term: int) -> None:
        cursor: ReplicatorCursor | None = replicator.outbox.cursor
        if cursor is None:
            cursor = await self._cursors.load(replicator)
        if term == tail.terms and term and tail.replicators.get(replicator.shadow.id) is replicator:
            replicator.outbox.start(cursor, tail.runs())
            replicator.started = True
            self.replicate([tail])

    # --- sending --------------------------------------------------------------------------------------------------

    def due(self, tail: SourceTail, size_bytes: int, first: bool, *, much: bool = False) -> None:
        """See `Replication.due`."""
        if first:
            self._due.append(tail)
        if self._call_due:
            return
        now = self.now()
        pace_seconds = PACE_SECONDS if size_bytes <= self._settings.inline_bytes_max else LARGE_PACE_SECONDS
        if much or now - self._sent_at >= pace_seconds:
            self._call_due = True
            self._world.network.call_soon(self._send_due)
        elif not self._timer_due:
            self._timer_due = True
            self._timers.call_at(now + pace_seconds + TRAILING_SECONDS, self._send_trailing)

    def _send_trailing(self) -> None:
        self._timer_due = False
        if self._due:
            self._send_due()

    def _send_due(self) -> None:
        self._call_due = False
        due, self._due = self._due, []
        self._sent_at = self.now()
        self.replicate(tail for tail in due if self._tails.get((tail.topic.id, tail.index)) is tail)

    def replicate(self, tails: Iterable[SourceTail]) -> None:
        """Sends everything unsent of these tails, as far as there is room: one frame for each broker."""
        frames: dict[ReplicationSender, OpenFrame] = {}
        now = self.now()
        for tail in tails:
            fresh = tail.collect()
            messages: dict[tuple[ReplicationSender, bool, tuple[EntryRun, ...]], Replicate] = {}
            for replicator in tail.replicators.values():
                sender = replicator.sender
                if sender is None:
                    continue
                self._waiting.setdefault(sender, {})[replicator] = tail
                if not replicator.can_send(now):
                    continue
                frame = frames.get(sender)
                if frame is None:
                    frame = frames[sender] = OpenFrame(sender.room_bytes)
                runs = replicator.outbox.take(sender.next_frame)
                idle = now < replicator.idle_until
                message = messages.get((sender, idle, runs))
                if message is None:
                    entries = () if idle else frame.inline(fresh, self._settings.inline_bytes_max)
                    message = messages[sender, idle, runs] = Replicate([], tail.index, runs, entries)
                    frame.messages.append(message)
                message.shadows.append(replicator.shadow.id.bytes)
        for sender, frame in frames.items():
            sender.send(frame.messages)

    def acked(self, sender: ReplicationSender, ack: Ack) -> None:
        """See `AckListener`."""
        now = self.now()
        nacks = {(nack.shadow, nack.partition): nack for nack in ack.nacks}
        waiting = self._waiting.get(sender, {})
        unsent: dict[SourceTail, None] = {}
        for replicator, tail in list(waiting.items()):
            nack = nacks.get((replicator.shadow.id.bytes, replicator.index))
            replicator.acked(ack.frame, nack, now)
            if nack is not None:
                self._nacked(replicator, nack)
            if replicator.can_send(now):
                unsent[tail] = None
            if replicator.outbox.empty:
                del waiting[replicator]
        if unsent and sender is not self._local:
            self.replicate(unsent)

    def _nacked(self, replicator: Replicator, nack: Nack) -> None:
        if nack.reason is NackReason.NOT_LEADER:
            self._timers.call_at(replicator.retry_at, self.changed)
        elif nack.reason is NackReason.REFUSED:
            self._log.warning(
                "shadow_refused_entries",
                topic=replicator.shadow.name,
                partition=replicator.index,
                reason=nack.text,
                next="the shadow reads them from its bookies; later entries are replicated",
            )

    def lost(self, sender: ReplicationSender) -> None:
        """See `AckListener`."""
        for replicator in self._all():
            if replicator.sender is sender:
                replicator.lost()
