"""Real Kafka clients at a steady pace while brokers restart; all answers that they get are recorded.

load = Load(bootstrap_servers, "orders", partitions=4)
workers = [load.producer("producer-0"), load.consumer("consumer-0")]
... start them, inject a fault, undo it ...
producer.finish(); load.wait_until_consumed(); consumer.finish()
assert load.findings() == []                        # the log is read and judged (see `log_checker`)
"""

from __future__ import annotations

import threading
import time
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gnomon.testing.storms.kafka.log_checker import LogHistory, check_log

SECONDS_TO_SETTLE: Final = 60.0
LAST_SECONDS_MAX: Final = 75.0
"""Time for the last step. A flush takes at most SECONDS_TO_SETTLE; `close` of a consumer without brokers never ends."""
CLIENT: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
BATCH_RECORDS: Final = 10
GROUP: Final = "readers"
GROUP_ANSWER_SECONDS: Final = 3.0
BEHIND_SECONDS_MAX: Final = 1.0
"""A producer that is further behind its pace (its machine was busy) skips the rest of the delay."""


class Worker(threading.Thread):
    """A thread that repeats `step` until it is stopped, then calls `last`; `finish` raises its error."""

    def __init__(self, name: str, step: Callable[[], None], last: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._step, self._last = step, last
        self._stopping = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """See `threading.Thread`."""
        try:
            while not self._stopping.is_set():
                self._step()
            self._last()
        except BaseException as error:
            self._error = error

    def finish(self) -> bool:
        """Stops the steps and waits for `last`; returns False if the thread still runs after LAST_SECONDS_MAX."""
        self._stopping.set()
        self.join(LAST_SECONDS_MAX)
        if self._error is not None:
            raise self._error
        return not self.is_alive()

    def abandon(self) -> None:
        """Stops the steps without `last`; does not wait for the end."""
        self._last = lambda: None
        self._stopping.set()


@dataclass(frozen=True, slots=True)
class Gap:
    """A period without an acknowledgement of a partition; monotonic seconds."""

    partition: int
    since: float
    until: float

    @property
    def seconds(self) -> float:
        """The length of the gap."""
        return self.until - self.since


class Load:
    """Producers and a consumer group of one topic, and the history of their answers.

    Args:
        records_a_second: the rate of each producer.
        padding_bytes: bytes after each record's own value; histories leave them out.
        message_timeout_seconds: a record that is not acknowledged within this time is a finding.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        partitions: int,
        records_a_second: int = 1000,
        padding_bytes: int = 0,
        message_timeout_seconds: float = 120,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.histories = [LogHistory() for _ in range(partitions)]
        self.acknowledged: list[tuple[float, int]] = []
        """Time and partition of each acknowledgement; ordered by time, except for those of the same moment."""
        self.consumed = [0] * partitions
        """The offset after the last one that the group has read, by partition."""
        self._step_seconds = BATCH_RECORDS / records_a_second
        self._padding = b"." * padding_bytes
        self._message_timeout_ms = int(message_timeout_seconds * 1000)
        self._lock = threading.Lock()

    def producer(self, name: str, config: Mapping[str, object] = NOTHING) -> Worker:
        """An idempotent producer of unique values, to each partition in turn; `config` has librdkafka's settings."""
        client = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                "message.timeout.ms": self._message_timeout_ms,
                **config,
            }
        )
        sent, due = 0, 0.0

        def send() -> None:
            nonlocal sent, due
            for _ in range(BATCH_RECORDS):
                self._send(client, name, sent)
                sent += 1
            now = time.monotonic()
            due = max(due + self._step_seconds, now - BEHIND_SECONDS_MAX)
            client.poll(0)
            while (left := due - time.monotonic()) > 0:
                client.poll(left)

        def flush() -> None:
            assert client.flush(SECONDS_TO_SETTLE) == 0, f"{len(client)} records of {name} are not answered"

        return Worker(name, send, flush)

    def _send(self, client: Producer, name: str, number: int) -> None:
        partition, value = number % len(self.histories), f"{name}/{number}".encode()
        with self._lock:
            record = self.histories[partition].send(name, value)

        def delivered(error: Any, message: Message) -> None:
            assert error is None, f"{record.value!r} was not delivered: {error}"
            offset = message.offset()
            record.acknowledged(-1 if offset is None else offset)
            self.acknowledged.append((time.monotonic(), partition))

        client.produce(self.topic, value + self._padding, partition=partition, on_delivery=delivered)

    def consumer(self, name: str, config: Mapping[str, object] = NOTHING) -> Worker:
        """A member of a group that continues from its commits; the history has a new reader for each assignment."""
        client = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
                **config,
            }
        )
        assignments = 0

        def assigned(_client: Consumer, _partitions: list[TopicPartition]) -> None:
            nonlocal assignments
            assignments += 1

        client.subscribe([self.topic], on_assign=assigned)

        def poll() -> None:
            message = client.poll(0.1)  # one at a time, so that the message belongs to the current assignment
            if message is None:
                return
            if message.error() is not None:
                assert message.error().retriable() or not message.error().fatal(), message.error()
                return
            self._polled(f"{name}/{assignments}", message)

        return Worker(name, poll, client.close)

    def _polled(self, reader: str, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        with self._lock:
            self.histories[partition].polled(reader, offset, self._named(message))
            assert offset <= self.consumed[partition], (
                f"the group skipped from offset {self.consumed[partition]} to {offset} of partition {partition}"
            )
            self.consumed[partition] = max(self.consumed[partition], offset + 1)

    def group(self) -> str:
        """The state and commits of the group at its coordinator, as text, or the error if it does not answer."""
        client = AdminClient({**CLIENT, "bootstrap.servers": self.bootstrap_servers})
        reader = Consumer({**CLIENT, "bootstrap.servers": self.bootstrap_servers, "group.id": GROUP})
        partitions = [TopicPartition(self.topic, partition) for partition in range(len(self.histories))]
        try:
            found = client.describe_consumer_groups([GROUP], request_timeout=GROUP_ANSWER_SECONDS)[GROUP].result()
            committed = [commit.offset for commit in reader.committed(partitions, timeout=GROUP_ANSWER_SECONDS)]
        except KafkaException as error:
            return f"the group is not described: {error.args[0].str()}"
        finally:
            reader.close()
        held = [len(member.assignment.topic_partitions) for member in found.members]
        return (
            f"the group is {found.state.name} at broker {found.coordinator.id}, its members hold {held} partitions; "
            f"it has read up to {self.consumed} and committed {committed}"
        )

    def _named(self, message: Message) -> bytes:
        """The value without its padding; the whole value if the padding was damaged."""
        value: bytes = message.value()
        return value.removesuffix(self._padding)

    def wait_until_consumed(self) -> None:
        """Waits until the group has read all acknowledged records."""
        deadline = time.monotonic() + SECONDS_TO_SETTLE
        while True:
            ends = [max((send.offset for send in history.sends), default=-1) + 1 for history in self.histories]
            if all(map(int.__ge__, self.consumed, ends)):
                return
            assert time.monotonic() < deadline, f"the partitions end at {ends}, and {self.group()}"
            time.sleep(0.05)

    def findings(self) -> list[str]:
        """Reads every partition and compares it with the history; returns the findings."""
        found: list[str] = []
        for partition, history in enumerate(self.histories):
            history.final = self._read_all(partition)
            where, records = f"{self.topic}-{partition}", len(history.final)
            found += [f"{where}: {finding.anomaly.value}: {finding.text}" for finding in check_log(history)]
            if records and history.final[0][0] != 0:
                found.append(f"{where}: the log begins at {history.final[0][0]}")
            if records != len(history.sends):
                found.append(f"{where}: {len(history.sends)} records were sent, {records} are in the log")
        return found

    def _read_all(self, partition: int) -> list[tuple[int, bytes]]:
        client = Consumer({**CLIENT, "bootstrap.servers": self.bootstrap_servers, "group.id": "judge"})
        client.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING)])
        _, end = client.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=30)
        records: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + SECONDS_TO_SETTLE
        while end and (not records or records[-1][0] < end - 1):
            for message in client.consume(5000, 1.0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                records.append((message.offset(), self._named(message)))
                deadline = time.monotonic() + SECONDS_TO_SETTLE
            assert time.monotonic() < deadline, f"partition {partition} cannot be read from {len(records)} to {end}"
        client.close()
        return records

    # --- periods without acknowledgements ---

    def outages(self, kills: list[float]) -> list[float]:
        """Seconds between the acknowledgements before and after each kill; kills in one gap count once."""
        times = sorted(when for when, _ in self.acknowledged)
        gaps = {}
        for kill in kills:
            at = bisect(times, kill)
            if 0 < at < len(times):
                gaps[times[at - 1]] = times[at] - times[at - 1]
        return sorted(gaps.values())

    def gaps(self, seconds_min: float) -> list[Gap]:
        """Periods of at least `seconds_min` without an acknowledgement of a partition, the shortest first."""
        found = []
        for partition in range(len(self.histories)):
            times = sorted(when for when, at in self.acknowledged if at == partition)
            found += [Gap(partition, *pair) for pair in pairwise(times) if pair[1] - pair[0] >= seconds_min]
        return sorted(found, key=lambda gap: gap.seconds)

    def wait_until_acknowledged(self, since: float, partition: int | None = None) -> float:
        """Waits for an acknowledgement after `since`, of this partition or any; returns the seconds between.

        Raises:
            AssertionError: no acknowledgement within SECONDS_TO_SETTLE.
        """
        deadline, at = time.monotonic() + SECONDS_TO_SETTLE, bisect(self.acknowledged, (since, len(self.histories)))
        while True:
            while at < len(self.acknowledged):
                when, which = self.acknowledged[at]
                if when > since and partition in (None, which):
                    return when - since
                at += 1
            assert time.monotonic() < deadline, f"{SECONDS_TO_SETTLE} s without an acknowledgement of {partition=}"
            time.sleep(0.001)
