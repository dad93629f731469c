"""Tells the shadows of what this broker writes: one replicator for each shadow and partition.

1. A produce never waits for it: an entry that is confirmed is put on a list, and told at the end of the turn or, where
   something was told within PACE_SECONDS (LARGE_PACE_SECONDS before a large entry), with the next one or
   TRAILING_SECONDS after that. Nothing is done for each entry and each shadow.
2. What a shadow that is away, slow or paused costs is bounded: a window of bytes for its broker (`window`), and some
   runs of ids (`outbox`). Entries are held for milliseconds.
3. Shadows and their leaders are those of this broker's image, always as it is now.
4. How far a shadow was told is stored, and a new or restarted owner goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from gnomon.broker.leadership import LiveBroker
from gnomon.broker.partition.partition import Partition
from gnomon.broker.shadow.cursors import ReplicatorCursors
from gnomon.broker.shadow.hearing import Answer, Told, Why
from gnomon.broker.shadow.links import Link, LocalLink, RemoteLink
from gnomon.broker.shadow.outbox import Cursor, Outbox, Run
from gnomon.broker.shadow.source_tail import SourceTail
from gnomon.broker.shadow.stats import ReplicationStats
from gnomon.broker.topics import Topic
from gnomon.runtime.settings import ShadowReplicationSettings

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

PACE_SECONDS = 0.002
"""Least time between two frames to one broker, so that a message of a thousand a second costs a part of a frame."""
LARGE_PACE_SECONDS = 0.005
"""The same where entries are too large to come along: their readers wait for a bookie anyway."""
TRAILING_SECONDS = 0.0005
"""So much later what came within that time is told, though nothing came behind it: fewer timers than frames."""
MOVED_SECONDS = 0.2
"""After so long a broker is asked again that says it does not lead a shadow."""
IDLE_SECONDS = 0.5
SAMPLE_SECONDS = 1.0
SMOOTHING = 0.5
"""How much the last second counts in a rate."""

_Key = tuple[uuid.UUID, int]


class Replicator:
    """One partition of one shadow, told by the owner of its source's."""

    def __init__(self, shadow: Topic, index: int, entries_max: int) -> None:
        self.shadow = shadow
        self.index = index
        self.outbox = Outbox(entries_max)
        self.link: Link | None = None
        self.started = False
        """Whether the outbox knows where to begin."""
        self.idle_until = float("-inf")
        """Nobody reads the shadow, so that ids are enough; whether that is still so is asked again then."""
        self.asked_again_at = float("-inf")
        self.refused = 0
        self._rates = (0.0, 0.0, 0.0)
        self._sampled: tuple[float, int, int, int] | None = None

    def can_tell(self, now: float) -> bool:
        """Whether there is something to tell, and somebody who takes it now."""
        link = self.link
        return (
            self.started
            and link is not None
            and self.outbox.unsent
            and now >= self.asked_again_at
            and link.room_bytes > 0
        )

    def lost(self) -> None:
        """The connection is another from now on."""
        self.outbox.lost()
        self.idle_until = float("-inf")

    def sample(self, now: float) -> None:
        """Once in SAMPLE_SECONDS: for the rates."""
        outbox = self.outbox
        counts = (now, outbox.heard_entries, outbox.heard_records, outbox.heard_bytes)
        if self._sampled is not None and now > self._sampled[0]:
            past = now - self._sampled[0]
            fresh = ((counts[at] - self._sampled[at]) / past for at in (1, 2, 3))
            entries, records, size = (
                before + SMOOTHING * (rate - before) for before, rate in zip(self._rates, fresh, strict=True)
            )
            self._rates = (entries, records, size)
        self._sampled = counts

    def stats(self, now: float) -> ReplicationStats:
        """How it stands."""
        entries, size_bytes, since = self.outbox.backlog()
        cursor = self.outbox.cursor
        return ReplicationStats(
            connected=self.link is not None and self.link.connected,
            backlog_entries=entries,
            backlog_bytes=size_bytes,
            backlog_seconds=0.0 if since is None else max(0.0, now - since),
            entries_per_second=self._rates[0],
            records_per_second=self._rates[1],
            bytes_per_second=self._rates[2],
            last_segment=None if cursor is None else cursor.segment,
            last_entry=None if cursor is None else cursor.entry - 1,
            told_entries=self.outbox.heard_entries,
            resets=self.outbox.resets,
            refused=self.refused,
        )


class _Frame:
    """What one broker is told now."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.told: list[Told] = []
        self._room_bytes = link.room_bytes

    def inline(self, fresh: Sequence[bytes], each_bytes_max: int) -> Sequence[bytes | None]:
        """Those of the entries that come along; none where there is no room for them."""
        entries = [value if len(value) <= each_bytes_max else None for value in fresh]
        size_bytes = sum(len(value) for value in entries if value is not None)
        if size_bytes > self._room_bytes:
            return ()
        self._room_bytes -= size_bytes
        return entries


class ShadowReplication:
    """All replicators of one broker; `run` keeps them to the image."""

    def __init__(self, broker: Broker, nursery: trio.Nursery, settings: ShadowReplicationSettings) -> None:
        self._broker = broker
        self._nursery = nursery
        self._settings = settings
        self._tails: dict[_Key, SourceTail] = {}
        self._links: dict[LiveBroker | None, Link] = {}
        """By broker, None for this one."""
        self._waiting: dict[int, dict[Replicator, SourceTail]] = {}
        """By link: those that have told something, or have something to tell, and what they tell of."""
        self._cursors = ReplicatorCursors(broker, settings.flush_seconds)
        self._due: list[SourceTail] = []
        self._told_at = float("-inf")
        self._soon = self._trailing = False
        self._stirred = trio.Event()
        self._watch_metrics()

    def now(self) -> float:
        """The monotonic second."""
        return self._broker.world.clock.monotonic()

    def stats(self, shadow: Topic, index: int) -> ReplicationStats | None:
        """How one partition of a shadow is told; None where another broker does that, or nothing was written yet."""
        tail = None if shadow.source is None else self._tails.get((shadow.source.id, index))
        replicator = None if tail is None else tail.replicators.get(shadow.id)
        return None if replicator is None else replicator.stats(self.now())

    def links(self) -> list[Link]:
        """The brokers that are told something."""
        return list(self._links.values())

    def _all(self) -> list[Replicator]:
        return [replicator for tail in self._tails.values() for replicator in tail.replicators.values()]

    def _watch_metrics(self) -> None:
        watch = self._broker.metrics.watch

        def total(of: Callable[[ReplicationStats], float]) -> Callable[[], float]:
            return lambda: sum(of(replicator.stats(self.now())) for replicator in self._all())

        def worst(of: Callable[[ReplicationStats], float]) -> Callable[[], float]:
            return lambda: max((of(replicator.stats(self.now())) for replicator in self._all()), default=0.0)

        watch("shadow_replicators", "Partitions of shadows that this broker tells", lambda: len(self._all()))
        watch("shadow_replicators_connected", "Those whose broker listens", total(lambda one: one.connected))
        watch("shadow_backlog_entries", "Entries not told shadows yet", total(lambda one: one.backlog_entries))
        watch("shadow_backlog_bytes", "Bytes of these", total(lambda one: one.backlog_bytes))
        watch("shadow_backlog_seconds", "The age of the oldest of these", worst(lambda one: one.backlog_seconds))
        watch("shadow_entries_per_second", "Entries told shadows", total(lambda one: one.entries_per_second))
        watch("shadow_bytes_per_second", "Bytes of these", total(lambda one: one.bytes_per_second))
        watch("shadow_refused", "How often shadows refused what they were told", total(lambda one: one.refused))
        watch("shadow_resets", "How often entries were skipped", total(lambda one: one.resets))

    # --- following the image ----------------------------------------------------------------------------------------

    def stir(self) -> None:
        """Topics, leaders or the partitions in use here have changed."""
        self._stirred.set()

    async def run(self) -> None:
        """Until cancelled."""
        self._nursery.start_soon(self._sample_regularly)
        while True:
            await self._stirred.wait()
            self._stirred = trio.Event()
            self._follow_image()

    async def _sample_regularly(self) -> None:
        while True:
            await self._broker.world.clock.sleep(SAMPLE_SECONDS)
            now = self.now()
            for replicator in self._all():
                replicator.sample(now)
            await self._cursors.flush(now, self._all())

    def _follow_image(self) -> None:
        broker = self._broker
        wanted: dict[_Key, tuple[Topic, Partition]] = {}
        for source_id in broker.image.shadowed():
            source = broker.image.get_by_id(source_id)
            for index in range(0 if source is None else source.partitions):
                partition = broker.partitions.get(source_id, index)
                if source is not None and partition is not None:
                    wanted[source_id, index] = (source, partition)
        for key, tail in list(self._tails.items()):
            if key not in wanted or wanted[key][1] is not tail.partition:
                self._drop(key, tail)
        for key, (source, partition) in wanted.items():
            tail = self._tails.get(key) or self._tail(key, source, partition)
            shadows = broker.image.shadows_of(source)
            self._follow_shadows(tail, [shadow for shadow in shadows if key[1] < shadow.partitions])
        self._close_links()
        self.tell(list(self._tails.values()))

    def _tail(self, key: _Key, topic: Topic, partition: Partition) -> SourceTail:
        tail = self._tails[key] = SourceTail(self, topic, key[1], partition)
        partition.attach(tail)
        return tail

    def _drop(self, key: _Key, tail: SourceTail) -> None:
        tail.partition.attach(None)
        del self._tails[key]
        self._nursery.start_soon(self._cursors.flush, float("inf"), list(tail.replicators.values()))

    def _follow_shadows(self, tail: SourceTail, shadows: list[Topic]) -> None:
        alive = {shadow.id for shadow in shadows}
        for gone in [shadow for shadow in tail.replicators if shadow not in alive]:
            del tail.replicators[gone]
        for shadow in shadows:
            replicator = tail.replicators.get(shadow.id)
            if replicator is None:
                limit = self._settings.shadow_replicator_auto_reset_backlog_entries
                replicator = tail.replicators[shadow.id] = Replicator(shadow, tail.index, limit)
                self.start_soon(tail, replicator)
            link = self._link(self._broker.leader(shadow, tail.index))
            if link is not replicator.link:
                replicator.link = link
                replicator.lost()

    def _link(self, leader: int) -> Link | None:
        broker = self._broker
        peer = None if leader == broker.node_id else broker.leadership.brokers.get(leader)
        if peer is None and leader != broker.node_id:
            return None
        link = self._links.get(peer)
        if link is None:
            link = LocalLink(broker, self) if peer is None else RemoteLink(broker, peer, self, self._nursery)
            self._links[peer] = link
        return link

    def _close_links(self) -> None:
        used = {id(replicator.link) for replicator in self._all()}
        for peer, link in list(self._links.items()):
            if id(link) not in used:
                del self._links[peer]
                self._waiting.pop(id(link), None)
                link.close()

    # --- beginning ------------------------------------------------------------------------------------------------

    def start_soon(self, tail: SourceTail, replicator: Replicator) -> None:
        """Begins where the stored cursor says, with what is confirmed of the log then."""
        self._nursery.start_soon(self._start, tail, replicator, tail.terms)

    async def _start(self, tail: SourceTail, replicator: Replicator, term: int) -> None:
        cursor: Cursor | None = replicator.outbox.cursor
        if cursor is None:
            cursor = await self._cursors.load(replicator)
        if term == tail.terms and term and tail.replicators.get(replicator.shadow.id) is replicator:
            replicator.outbox.start(cursor, tail.runs())
            replicator.started = True
            self.tell([tail])

    # --- telling --------------------------------------------------------------------------------------------------

    def due(self, tail: SourceTail, size_bytes: int, first: bool, *, much: bool = False) -> None:
        """It has a fresh entry of this size, the first since it was told; or `much`, that must not wait."""
        if first:
            self._due.append(tail)
        if self._soon:
            return
        now = self.now()
        pace_seconds = PACE_SECONDS if size_bytes <= self._settings.inline_bytes_max else LARGE_PACE_SECONDS
        if much or now - self._told_at >= pace_seconds:
            self._soon = True
            self._broker.world.network.call_soon(self._tell_due)
        elif not self._trailing:
            self._trailing = True
            self._broker.timers.call_at(now + pace_seconds + TRAILING_SECONDS, self._trail)

    def _trail(self) -> None:
        self._trailing = False
        if self._due:
            self._tell_due()

    def _tell_due(self) -> None:
        self._soon = False
        due, self._due = self._due, []
        self._told_at = self.now()
        self.tell(tail for tail in due if self._tails.get((tail.topic.id, tail.index)) is tail)

    def tell(self, tails: Iterable[SourceTail]) -> None:
        """Tells now what there is to tell, as far as there is room."""
        frames: dict[int, _Frame] = {}
        now = self.now()
        for tail in tails:
            fresh = tail.collect()
            groups: dict[tuple[int, bool, tuple[Run, ...]], Told] = {}
            for replicator in tail.replicators.values():
                link = replicator.link
                if link is None:
                    continue
                self._waiting.setdefault(id(link), {})[replicator] = tail
                if not replicator.can_tell(now):
                    continue
                frame = frames.get(id(link))
                if frame is None:
                    frame = frames[id(link)] = _Frame(link)
                runs = replicator.outbox.take(link.next_frame)
                idle = now < replicator.idle_until
                group = groups.get((id(link), idle, runs))
                if group is None:
                    entries = () if idle else frame.inline(fresh, self._settings.inline_bytes_max)
                    group = groups[id(link), idle, runs] = Told([], tail.index, runs, entries)
                    frame.told.append(group)
                group.shadows.append(replicator.shadow.id.bytes)
        for frame in frames.values():
            frame.link.send(frame.told)

    def heard(self, link: Link, frame: int, answers: Sequence[Answer]) -> None:
        """See `Ears`."""
        now = self.now()
        said = {(answer.shadow, answer.partition): answer for answer in answers}
        waiting = self._waiting.get(id(link), {})
        told: dict[SourceTail, None] = {}
        for replicator, tail in list(waiting.items()):
            if replicator.link is link:
                answer = said.get((replicator.shadow.id.bytes, replicator.index))
                self._heard(replicator, frame, answer, now)
                if replicator.can_tell(now):
                    told[tail] = None
            if replicator.link is not link or replicator.outbox.empty:
                del waiting[replicator]
        if told and not isinstance(link, LocalLink):
            self.tell(told)

    def _heard(self, replicator: Replicator, frame: int, answer: Answer | None, now: float) -> None:
        idle = answer is not None and answer.why is Why.IDLE
        replicator.idle_until = now + IDLE_SECONDS if idle else float("-inf")
        if answer is not None and answer.why is Why.MOVED:
            replicator.lost()
            replicator.asked_again_at = now + MOVED_SECONDS
            self._broker.timers.call_at(replicator.asked_again_at, self.stir)
            return
        if answer is not None and answer.why is Why.REFUSED:
            replicator.refused += 1
            self._broker.log.warning(
                "shadow_refused_entries",
                topic=replicator.shadow.name,
                partition=replicator.index,
                reason=answer.text,
                next="it reads them from its bookies; what comes behind is told",
            )
        replicator.outbox.heard(frame)

    def lost(self, link: Link) -> None:
        """See `Ears`."""
        for replicator in self._all():
            if replicator.link is link:
                replicator.lost()
