"""Real clients of a table while its brokers restart: counters, a Kafka producer and readers, and their judge.

load = TableLoad(native, bootstrap_servers, "table")
workers = load.workers()
... start them, inject a fault, undo it, finish them ...
assert load.findings() == []
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

import gnomon.client.errors as errors
from gnomon.client.blocking import BlockingClient, connect_blocking
from gnomon.client.tables.blocking_table import BlockingTable
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.processes.kafka_load import CLIENT, SECONDS_TO_SETTLE, Worker

COUNTERS: Final = 2
COUNTER: Final = b"counter"
PREFIX: Final = b"put/"
PAUSE_SECONDS: Final = 0.02
FINDINGS_MAX: Final = 5
AWAY: Final = (errors.Retriable, Unreachable)


class TableLoad:
    """Clients of one table of one partition, and the answers that they got."""

    def __init__(self, native: str, bootstrap_servers: str, topic: str) -> None:
        """No client runs; `native` has the native addresses of brokers."""
        self._native = native
        self._topic = topic
        self._lock = threading.Lock()
        self._producer = Producer(
            {**CLIENT, "bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 5}
        )
        self._produced = 0
        self._put: dict[bytes, bytes] = {}
        """The acknowledged values of Kafka's producer."""
        self._sums: list[int] = []
        self._unknown = 0
        self.reads = 0
        self._wrong: list[str] = []

    @property
    def sums(self) -> int:
        """The number of acknowledged increments."""
        return len(self._sums)

    def workers(self) -> list[Worker]:
        """The clients, to be started."""
        counters = [self._native_worker(f"counter-{number}", self._count) for number in range(COUNTERS)]
        produce = Worker("table-producer", self._produce, self._flush)
        return [*counters, self._native_worker("table-reader", self._read), produce]

    def _native_worker(self, name: str, step: Callable[[BlockingTable], None]) -> Worker:
        stack, opened = ExitStack(), list[BlockingClient]()

        def work() -> None:
            if not opened:
                opened.append(stack.enter_context(connect_blocking(self._native)))
            try:
                step(opened[0].table(self._topic))
            except AWAY:
                time.sleep(PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)

        return Worker(name, work, stack.close)

    def _count(self, table: BlockingTable) -> None:
        try:
            total = table.increment(COUNTER)
        except errors.OutcomeUnknown:
            with self._lock:
                self._unknown += 1
            return
        with self._lock:
            self._sums.append(total)

    def _read(self, table: BlockingTable) -> None:
        with self._lock:
            low = max(self._sums, default=0)
        entry = table.get(COUNTER)
        found = 0 if entry is None else int(entry.value)
        self.reads += 1
        if found < low:
            self._wrong.append(f"a read found {found} after an increment to {low} was acknowledged")

    def _produce(self) -> None:
        key, value = PREFIX + b"%d" % self._produced, b"%d" % self._produced
        self._produced += 1

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._put[key] = value

        self._producer.produce(self._topic, key=key, value=value, on_delivery=told)
        self._producer.poll(PAUSE_SECONDS)

    def _flush(self) -> None:
        self._producer.flush(SECONDS_TO_SETTLE)

    def findings(self) -> list[str]:
        """The errors that the table shows at the end, once all clients have finished."""
        found = list(self._wrong)
        with connect_blocking(self._native) as client:
            table = client.table(self._topic)
            entry = table.get(COUNTER)
            total = 0 if entry is None else int(entry.value)
            shown, after = dict[bytes, bytes](), None
            while True:
                page = table.scan(PREFIX, after=after, limit=10_000)
                shown.update((each.key, each.value) for each in page.entries)
                after = page.after
                if after is None:
                    break
        if not len(self._sums) <= total <= len(self._sums) + self._unknown:
            found.append(f"the counter is {total}: {len(self._sums)} acknowledged and {self._unknown} unknown")
        if len(set(self._sums)) != len(self._sums):
            found.append("two increments had the same sum")
        lost = [key for key, value in self._put.items() if shown.get(key) != value]
        if lost:
            found.append(f"{len(lost)} of {len(self._put)} values of Kafka's producer are lost, the first: {lost[0]!r}")
        return found[:FINDINGS_MAX]

    def report(self) -> str:
        """The numbers of the load."""
        return (
            f"table: {len(self._sums)} increments and {len(self._put)} puts acknowledged, {self._unknown} unknown,"
            f" {self.reads} reads"
        )
