"""Produces all flights while the broker is killed and restarted without the producer's knowledge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.flights.client import ClientSettings, Stalled
from bench.flights.flight import Flight
from bench.flights.server import FlightServer

STALLED_SECONDS = 60
POLL_SECONDS = 0.05
POLL_EVERY = 256
CREATE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class ProducedFlights:
    """The result of producing; `killed_after` counts the deliveries known when the broker was killed."""

    seconds: float
    value_bytes: int
    killed_after: int
    outage_seconds: float
    failed: int
    failure: str


class Deliveries:
    """Counts delivery reports and finds the longest time without one.

    `half` is set when half of them have arrived, or when they no longer will because producing was cut short.
    """

    def __init__(self, total: int) -> None:
        self.count = 0
        self.failed = 0
        self.failure = ""
        self.longest_gap_seconds = 0.0
        self.half = threading.Event()
        self.half_count = total // 2
        self._last_at = time.monotonic()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last_at)
        self._last_at = now
        if error is not None:
            self.failed += 1
            self.failure = self.failure or error.str()
            return
        self.count += 1
        if self.count == self.half_count:
            self.half.set()

    def quiet_seconds(self) -> float:
        return time.monotonic() - self._last_at


def create_topic(
    settings: ClientSettings, topic: str, partitions: int, configs: Mapping[str, str] = MappingProxyType({})
) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(configs))
    admin = AdminClient(settings.having())  # must live until the answer arrives
    admin.create_topics([new], request_timeout=CREATE_SECONDS)[topic].result()


def produce(
    settings: ClientSettings,
    topic: str,
    flights: Sequence[Flight],
    server: FlightServer,
    say: Callable[[str], None],
    advance: Callable[[int], None],
) -> ProducedFlights:
    """Sends every flight; returns when each has its delivery report.

    Args:
        say: called with messages about the broker's death and return.
        advance: called now and then with the number of deliveries so far.

    Raises:
        Stalled: no delivery for a minute.
        NotReady: the broker did not come back.
    """
    deliveries = Deliveries(len(flights))
    with ThreadPoolExecutor(1) as pool:
        restart = pool.submit(_kill_and_restart, server, deliveries, say)
        try:
            began = time.monotonic()
            send(settings, topic, flights, deliveries, advance, restart)
            seconds = time.monotonic() - began
        finally:
            deliveries.half.set()
    value_bytes = sum(len(flight.document) for flight in flights)
    return ProducedFlights(
        seconds,
        value_bytes,
        restart.result(),
        deliveries.longest_gap_seconds,
        deliveries.failed,
        deliveries.failure,
    )


def _kill_and_restart(server: FlightServer, deliveries: Deliveries, say: Callable[[str], None]) -> int:
    """Waits for the half, kills and restarts; returns the deliveries the producer knew of at the kill."""
    deliveries.half.wait()
    count = deliveries.count
    if count < deliveries.half_count:
        return count
    server.kill()
    say(f"broker killed with SIGKILL after {count:,} deliveries; the producer goes on")
    server.start()
    say(f"broker ready again after {server.start_seconds[-1]:.2f} s")
    return count


def send(
    settings: ClientSettings,
    topic: str,
    flights: Sequence[Flight],
    deliveries: Deliveries,
    advance: Callable[[int], None],
    beside: Future[Any],
) -> None:
    """Sends every flight in order; returns when each has its delivery report.

    Args:
        advance: called now and then with the number of deliveries so far.
        beside: runs meanwhile; if it fails, so does this.

    Raises:
        Stalled: no delivery for a minute.
    """
    producer = Producer(settings.having(enable_idempotence=True, acks="all", compression_type="zstd"))

    def wait(seconds: float) -> None:
        producer.poll(seconds)
        advance(deliveries.count)
        if beside.done():
            beside.result()
        if deliveries.quiet_seconds() > STALLED_SECONDS:
            raise Stalled(f"no delivery for {STALLED_SECONDS} s, {deliveries.count:,} of {len(flights):,} are done")

    try:
        for number, flight in enumerate(flights):
            while True:
                try:
                    producer.produce(topic, flight.document, flight.carrier, on_delivery=deliveries)
                    break
                except BufferError:  # librdkafka's queue is full, at 100,000 messages by default
                    wait(POLL_SECONDS)
            if number % POLL_EVERY == 0:
                wait(0)
        while len(producer):
            wait(POLL_SECONDS)
    finally:
        producer.purge()  # nothing is left unless this was cut short; then closing must not wait for it
