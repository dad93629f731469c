"""Reading a topic to its end with a consumer group, one thread per member."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.flights.client import ClientSettings, Stalled
from bench.flights.tally import Census, Tally

STALLED_SECONDS = 60
POLL_SECONDS = 0.05
BATCH = 5_000
HEARTBEAT_MS = 250
"""The interval at which the first member learns that the second has joined; the default of 3 s would be most of the
run."""
WATERMARK_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Consumed:
    """The result of reading. `forming_seconds` passed between subscribing and every member having partitions."""

    tallies: list[Tally]
    forming_seconds: float
    seconds: float


class FlightGroup:
    """The state that the members of one group share: members with partitions, and the progress in the topic."""

    def __init__(self, members: int) -> None:
        self.stop = threading.Event()
        self.formed_at: float | None = None
        self.done_at: float | None = None
        self.moved_at = time.monotonic()
        self.counted = 0
        self._members = members
        self._ends: dict[int, int] | None = None
        self._reached: dict[int, int] = {}
        self._holders: set[str] = set()
        self._lock = threading.Lock()

    @property
    def formed(self) -> bool:
        return self.formed_at is not None

    def holds(self, name: str, partitions: int) -> None:
        """A member has got, or lost, partitions."""
        with self._lock:
            self.moved_at = time.monotonic()
            (self._holders.add if partitions else self._holders.discard)(name)
            if len(self._holders) == self._members and not self.formed:
                self.formed_at = self.moved_at

    def read(self, records: int, positions: dict[int, int]) -> None:
        """A member has counted records, and reached these offsets."""
        with self._lock:
            self.moved_at = time.monotonic()
            self.counted += records
            self._reached.update(positions)
            self._stop_at_the_end()

    def end_at(self, ends: dict[int, int]) -> None:
        """The topic is complete, and ends at these offsets."""
        with self._lock:
            self._ends = ends
            self._stop_at_the_end()

    def _stop_at_the_end(self) -> None:
        if self._ends is not None and all(self._reached.get(at, 0) >= end for at, end in self._ends.items()):
            self.done_at = self.done_at or self.moved_at
            self.stop.set()


class FlightGroupMember:
    """One consumer. It reads only once every member has partitions, and commits its counted records before it gives a
    partition away, so that the next member continues exactly there."""

    def __init__(self, name: str, group: FlightGroup, census: Census) -> None:
        self.tally = Tally(census)
        self._name = name
        self._group = group
        self._held: list[TopicPartition] = []
        self._positions: dict[int, int] = {}
        self._paused = False

    def run(self, settings: ClientSettings, topic: str) -> Tally:
        consumer = Consumer(
            settings.having(
                client_id=self._name,
                group_id="flights",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=HEARTBEAT_MS,
            )
        )
        try:
            consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
            while not self._group.stop.is_set():
                self._read(consumer)
        finally:
            self._group.stop.set()
            consumer.close()
        return self.tally

    def _read(self, consumer: Consumer) -> None:
        if self._paused and self._group.formed:
            consumer.resume(self._held)
            self._paused = False
        messages = consumer.consume(BATCH, POLL_SECONDS)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "a message that was read has a partition"
            assert offset is not None, "a message that was read has an offset"
            self.tally.add(partition, message.key(), message.value())
            self._positions[partition] = offset + 1
        if messages:
            self._group.read(len(messages), self._positions)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._held = partitions
        self._positions.clear()
        consumer.assign(partitions)
        self._paused = not self._group.formed
        if self._paused:
            consumer.pause(partitions)
        self._group.holds(self._name, len(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._group.holds(self._name, 0)
        counted = [
            TopicPartition(held.topic, held.partition, self._positions[held.partition])
            for held in partitions
            if held.partition in self._positions
        ]
        if counted:
            consumer.commit(offsets=counted, asynchronous=False)


def end_offsets(settings: ClientSettings, topic: str, partitions: int) -> dict[int, int]:
    """The current end of each partition."""
    consumer = Consumer(settings.having(group_id="flights-ends"))
    try:
        ends = {}
        for partition in range(partitions):
            place = TopicPartition(topic, partition)
            watermarks = consumer.get_watermark_offsets(place, timeout=WATERMARK_SECONDS, cached=False)
            if watermarks is None:
                raise Stalled(f"no answer about the end of {topic}-{partition} within {WATERMARK_SECONDS} s")
            ends[partition] = watermarks[1]
        return ends
    finally:
        consumer.close()


def consume(
    settings: ClientSettings,
    topic: str,
    members: int,
    census: Census,
    advance: Callable[[int], None],
    ends: Callable[[], dict[int, int] | None],
) -> Consumed:
    """Reads the topic to its end.

    Args:
        advance: called now and then with the number of records counted so far.
        ends: returns the end offsets; None while the topic is still written to.

    Raises:
        Stalled: no member got partitions or read a record for a minute.
        KafkaException: a member failed.
    """
    group = FlightGroup(members)
    found: dict[int, int] | None = None
    began = time.monotonic()
    with ThreadPoolExecutor(members) as pool:
        runs = [
            pool.submit(FlightGroupMember(f"flights-{number}", group, census).run, settings, topic)
            for number in range(members)
        ]
        try:
            while wait(runs, timeout=POLL_SECONDS).not_done:
                advance(group.counted)
                if found is None and (found := ends()) is not None:
                    group.end_at(found)
                if not group.stop.is_set() and time.monotonic() - group.moved_at > STALLED_SECONDS:
                    raise Stalled(f"the group has not moved for {STALLED_SECONDS} s, {group.counted:,} are counted")
        finally:
            group.stop.set()
    tallies = [run.result() for run in runs]
    advance(group.counted)
    assert group.formed_at is not None, "members ended before they had partitions"
    assert group.done_at is not None, "members ended before the topic's end"
    return Consumed(tallies, group.formed_at - began, group.done_at - group.formed_at)
