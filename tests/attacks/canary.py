"""A healthy client beside an attack: it writes one small record after the other, and measures how long each takes."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from frames import kafka_frame, produce_body, read_frame
from watched_node import WatchedNode

from gnomon.wire.kafka.records import Record, build_batch

PAUSE_SECONDS = 0.002
ANSWER_SECONDS = 60.0


class Canary:
    """Writes to `topic` within its block.

    Attributes:
        answers: records that were acknowledged.
        slowest_seconds: the most processor time that the node's event loop used between a request and its answer.
    """

    def __init__(self, node: WatchedNode, address: tuple[str, int], topic: str) -> None:
        self.answers = 0
        self.slowest_seconds = 0.0
        self._node = node
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS)
        batch = build_batch([Record(offset_delta=0, key=None, value=b"canary")], base_timestamp=1)
        self._frame = kafka_frame(0, 9, produce_body({topic: [batch]}))
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._sing)

    def _sing(self) -> None:
        try:
            while not self._ended.wait(PAUSE_SECONDS):
                before = self._node.processor_seconds()
                self._socket.sendall(self._frame)
                read_frame(self._socket)
                self.slowest_seconds = max(self.slowest_seconds, self._node.processor_seconds() - before)
                self.answers += 1
        except (OSError, EOFError) as error:
            self._failure = error

    def __enter__(self) -> Canary:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._thread.is_alive() and not self.answers:
            self._ended.wait(PAUSE_SECONDS)
        self._ended.set()
        self._thread.join()
        self._socket.close()
        if self._failure is not None:
            raise self._failure
