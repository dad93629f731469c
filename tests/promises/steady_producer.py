"""A Kafka producer at a steady pace, in a thread of its own."""

from __future__ import annotations

import threading
from typing import Any, Self

from confluent_kafka import Producer

RECORDS_A_TICK = 10
TICK_SECONDS = 0.005
BATCHES: dict[str, object] = {"linger.ms": 0, "batch.num.messages": 1}
"""Each record is a batch of its own, so that hundreds of batches are on their way to a consumer."""


class SteadyProducer:
    """Writes to partition 0 of a topic inside its block, until `finish`."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.written: dict[int, bytes] = {}
        """The values that were acknowledged, by offset."""
        self._topic = topic
        self._client = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", **BATCHES})
        self._errors: list[object] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def finish(self) -> None:
        """Stops, and returns once every record is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._errors == [], "the producer was told of an error"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(TICK_SECONDS):
            for _ in range(RECORDS_A_TICK):
                key = b"key %d" % (number % 50)
                self._client.produce(self._topic, b"%d" % number, key, 0, on_delivery=self._delivered)
                number += 1
            self._client.poll(0)
        self._client.flush()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error)
        else:
            self.written[message.offset()] = message.value()
