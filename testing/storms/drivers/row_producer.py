"""A producer of numbered rows at a steady pace, whatever happens to the brokers."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from confluent_kafka import Producer

from gnomon.testing.storms.drivers.numbered_rows import record_of
from gnomon.testing.storms.processes.kafka_load import CLIENT

BATCH_ROWS: Final = 10
MESSAGE_SECONDS: Final = 120


class RowProducer(threading.Thread):
    """Produces some rows, and more from `go_on` to `stop`.

    The thread ends after `stop`, once all rows are acknowledged, or with `error`.

    Args:
        first: the number of rows that it produces before `go_on`.
    """

    def __init__(self, servers: str, topic: str, partitions: int, *, first: int, rows_a_second: int) -> None:
        super().__init__(name="rows", daemon=True)
        self.sent = 0
        """The number of rows that were sent."""
        self.error = ""
        """The reason why rows are not acknowledged."""
        self._topic, self._partitions = topic, partitions
        self._first, self._step_seconds = first, BATCH_ROWS / rows_a_second
        self._going_on, self._stopping = threading.Event(), threading.Event()
        self._client = Producer(
            {
                **CLIENT,
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                "message.timeout.ms": MESSAGE_SECONDS * 1000,
            }
        )

    def go_on(self) -> None:
        """Sends further rows."""
        self._going_on.set()

    def stop(self) -> None:
        """Sends no further rows."""
        self._stopping.set()

    def run(self) -> None:
        """See `threading.Thread`."""
        due = time.monotonic()
        while not self._stopping.is_set() and not self.error:
            if self.sent < self._first or self._going_on.is_set():
                self._send()
            due = max(due + self._step_seconds, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                self._client.poll(left)
        self._client.flush(MESSAGE_SECONDS)
        if len(self._client):
            self.error = f"{len(self._client)} rows are not acknowledged"

    def _send(self) -> None:
        for _ in range(BATCH_ROWS):
            key, value = record_of(self.sent)
            place = self.sent % self._partitions
            self._client.produce(self._topic, value, key, place, on_delivery=self._delivered)
            self.sent += 1

    def _delivered(self, error: Any, _: object) -> None:
        if error is not None:
            self.error = f"a row was not delivered: {error}"
