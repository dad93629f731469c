"""A real broker under load, killed with SIGKILL again and again: what it acknowledged is there, once, in its place.

`--kills 50` kills it more often; the figures come with pytest's `-s`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from bisect import bisect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.testing.kafka_broker import BrokerNotStarted, KafkaBroker
from gnomon.testing.log_checker import LogHistory, check_log

TOPIC = "orders"
PARTITIONS = 4
PRODUCERS = 2
CONSUMERS = 2
RECORDS_A_SECOND = 1000
SECONDS_TO_SETTLE = 60.0
CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}


class Worker(threading.Thread):
    """Repeats `step` until it is stopped, then does `last`; `finish` raises its error."""

    def __init__(self, name: str, step: Callable[[], None], last: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._step, self._last = step, last
        self._stopping = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
            self._last()
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        self._stopping.set()
        self.join()
        if self._error is not None:
            raise self._error


class Load:
    """Producers and a consumer group of one topic, and what they were told."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.histories = [LogHistory() for _ in range(PARTITIONS)]
        self.acknowledged_at: list[float] = []
        self.consumed = [0] * PARTITIONS
        """The offset behind the last one that the group has read, by partition."""
        self._lock = threading.Lock()

    def producer(self, name: str) -> Worker:
        """An idempotent producer of unique values at a steady pace."""
        client = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self.broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 120_000,
            }
        )
        sent = 0

        def send() -> None:
            nonlocal sent
            for _ in range(10):
                partition, value = sent % PARTITIONS, f"{name}/{sent}".encode()
                with self._lock:
                    record = self.histories[partition].send(name, value)

                def delivered(error: Any, message: Message, record: Any = record) -> None:
                    assert error is None, f"{record.value!r} was not delivered: {error}"
                    record.acknowledged(message.offset())
                    self.acknowledged_at.append(time.monotonic())

                client.produce(TOPIC, value, partition=partition, on_delivery=delivered)
                sent += 1
            client.poll(10 / RECORDS_A_SECOND)

        def flush() -> None:
            assert client.flush(SECONDS_TO_SETTLE) == 0, f"{len(client)} records of {name} were never answered"

        return Worker(name, send, flush)

    def consumer(self, name: str) -> Worker:
        """A member of a group that goes on from its commits; each assignment is a reader of its own."""
        client = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
            }
        )
        assignments = 0

        def assigned(_client: Consumer, _partitions: list[TopicPartition]) -> None:
            nonlocal assignments
            assignments += 1

        client.subscribe([TOPIC], on_assign=assigned)

        def poll() -> None:
            for message in client.consume(500, 0.1):
                if message.error() is not None:
                    assert message.error().retriable() or not message.error().fatal(), message.error()
                    continue
                partition, offset = message.partition(), message.offset()
                with self._lock:
                    self.histories[partition].polled(f"{name}/{assignments}", offset, message.value())
                    assert offset <= self.consumed[partition], (
                        f"the group went from offset {self.consumed[partition]} to {offset}"
                    )
                    self.consumed[partition] = max(self.consumed[partition], offset + 1)

        return Worker(name, poll, client.close)

    def wait_until_consumed(self) -> None:
        """Waits until the group has read all that was acknowledged."""
        deadline = time.monotonic() + SECONDS_TO_SETTLE
        while True:
            ends = [max((send.offset for send in history.sends), default=-1) + 1 for history in self.histories]
            if all(map(int.__ge__, self.consumed, ends)):
                return
            assert time.monotonic() < deadline, f"the group stands at {self.consumed}, the partitions end at {ends}"
            time.sleep(0.05)

    def check(self) -> None:
        """Reads every partition and compares it with what everybody was told."""
        for partition, history in enumerate(self.histories):
            history.final = _read_all(self.broker, partition)
            findings = [f"{finding.anomaly.value}: {finding.text}" for finding in check_log(history)]
            assert not findings, f"{TOPIC}-{partition}: " + "; ".join(findings)
            assert [offset for offset, _ in history.final] == list(range(len(history.final)))
            assert len(history.final) == len(history.sends)

    def outages(self, kills: list[float]) -> list[float]:
        """Seconds between the acknowledgements before and after each kill; kills in one gap count once."""
        times = sorted(self.acknowledged_at)
        gaps = {}
        for kill in kills:
            at = bisect(times, kill)
            if 0 < at < len(times):
                gaps[times[at - 1]] = times[at] - times[at - 1]
        return sorted(gaps.values())

    def wait_until_acknowledged(self, since: float) -> float:
        """Waits for an acknowledgement after `since`; returns how many seconds after."""
        deadline = time.monotonic() + SECONDS_TO_SETTLE
        while not self.acknowledged_at or self.acknowledged_at[-1] <= since:
            assert time.monotonic() < deadline, f"{SECONDS_TO_SETTLE} s without an acknowledgement"
            time.sleep(0.001)
        return self.acknowledged_at[bisect(self.acknowledged_at, since)] - since


def _read_all(broker: KafkaBroker, partition: int) -> list[tuple[int, bytes]]:
    client = Consumer({**CLIENT, "bootstrap.servers": broker.bootstrap_servers, "group.id": "judge"})
    client.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
    _, end = client.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
    records: list[tuple[int, bytes]] = []
    while not records or records[-1][0] < end - 1:
        for message in client.consume(5000, 1.0):
            if message.error() is not None:
                raise KafkaException(message.error())
            records.append((message.offset(), message.value()))
    client.close()
    return records


def _kill_and_start(broker: KafkaBroker, stream: random.Random) -> list[float]:
    """Kills the broker, in some rounds once more while it starts; returns when."""
    kills = [time.monotonic()]
    broker.kill()
    while stream.random() < 0.3:
        starting = threading.Thread(target=_try_to_start, args=[broker])
        starting.start()
        while not broker.running and starting.is_alive():
            time.sleep(0.001)
        time.sleep(0.4 * stream.random())
        kills.append(time.monotonic())
        if broker.running:
            os.kill(broker.pid, signal.SIGKILL)
        starting.join()
        broker.kill()
    broker.start()
    return kills


def _try_to_start(broker: KafkaBroker) -> None:
    try:
        broker.start()
    except BrokerNotStarted:
        pass


def test_a_broker_that_is_killed_under_load_keeps_what_it_acknowledged(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    stream = random.Random("kills")
    settings = {"log.segment.bytes": 65_536, "group.initial.rebalance.delay.ms": 0}
    kills: list[float] = []
    resumed: list[float] = []
    with KafkaBroker(data_dir=tmp_path, durability="synced", settings=settings) as broker:
        admin = AdminClient({**CLIENT, "bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        load = Load(broker)
        producers = [load.producer(f"producer-{number}") for number in range(PRODUCERS)]
        consumers = [load.consumer(f"consumer-{number}") for number in range(CONSUMERS)]
        for worker in (*consumers, *producers):
            worker.start()
        while len(kills) < pytestconfig.getoption("--kills"):
            time.sleep(stream.random())
            kills += _kill_and_start(broker, stream)
            ready = time.monotonic()
            if stream.random() < 0.8:  # else it is killed again wherever its clients are by then
                resumed.append(load.wait_until_acknowledged(ready))
        time.sleep(0.5)
        for producer in producers:
            producer.finish()
        load.wait_until_consumed()
        for consumer in consumers:
            consumer.finish()
        load.check()
    outages = load.outages(kills)
    records = sum(len(history.final) for history in load.histories)
    print(
        f"\n{records} records, {len(kills)} kills, {len(outages)} outages as the producers saw them:"
        f" p50 {outages[len(outages) // 2]:.2f} s, max {outages[-1]:.2f} s; from ready to the next acknowledgement"
        f" p50 {sorted(resumed)[len(resumed) // 2]:.2f} s, max {max(resumed):.2f} s"
    )
