"""The floor: a minimal server with Trio and LMDB, which receives a frame, commits it synced, and answers.

`python -m bench.floor PORT DATA_DIR`. The floor has no log, no checks, and nothing to read back. Its figures are the
minimal cost of a broker in Python: the difference to gnomon's figures is the cost of gnomon's layers. It answers just
enough of ApiVersions and Metadata for librdkafka to produce, so that the same load generators can be used for all
systems. It advertises Fetch only because librdkafka sends no magic-2 batches otherwise.
"""

from __future__ import annotations

import queue
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import lmdb
import trio

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
ADVERTISED = ((PRODUCE, 0, 7), (FETCH, 4, 4), (METADATA, 4, 4), (API_VERSIONS, 0, 0))
ONE_PARTITION = struct.pack(">?ihiiiiii", False, 1, 0, 0, 0, 1, 0, 1, 0)  # led by node 0, which is its only replica
BUFFER_BYTES = 4 << 20
MAP_BYTES = 1 << 38


class FloorRequest(NamedTuple):
    connection: socket.socket
    frame: bytes
    """The frame without its length."""


class FloorServer:
    def __init__(self, port: int, data_dir: Path) -> None:
        self._port = port
        self._env = lmdb.open(str(data_dir), map_size=MAP_BYTES)
        self._requests: queue.SimpleQueue[FloorRequest] = queue.SimpleQueue()

    async def run(self) -> None:
        token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._commit_forever, args=(token,), daemon=True).start()
        listener = socket.create_server(("127.0.0.1", self._port), backlog=512)
        listener.setblocking(False)
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listener)
                connection, _ = listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        """Splits the bytes of a connection into frames; many small ones in one call, a large one in several."""
        view, filled = memoryview(bytearray(BUFFER_BYTES)), 0
        while True:
            await trio.lowlevel.wait_readable(connection)
            try:
                received = connection.recv_into(view[filled:])
            except OSError:
                received = 0
            if not received:
                return connection.close()
            filled, start = filled + received, 0
            while filled - start >= 4 and filled >= (end := start + 4 + int.from_bytes(view[start : start + 4], "big")):
                self._requests.put(FloorRequest(connection, bytes(view[start + 4 : end])))
                start = end
            view[: filled - start] = bytes(view[start:filled])
            filled -= start

    def _commit_forever(self, token: trio.lowlevel.TrioToken) -> None:
        """Group commit: one synced transaction for everything that arrived during the one before."""
        sequence = 0
        while True:
            group = [self._requests.get()]
            while not self._requests.empty():
                group.append(self._requests.get_nowait())
            with self._env.begin(write=True) as transaction:
                for request in group:
                    if request.frame.startswith(b"\0\0"):
                        transaction.put(struct.pack(">Q", sequence), request.frame, append=True)
                        sequence += 1
            token.run_sync_soon(self._send_answers, group)

    def _send_answers(self, group: list[FloorRequest]) -> None:
        """Sends once per connection, in the order of its requests; answers are too small for a full socket."""
        answers: dict[socket.socket, bytearray] = {}
        for request in group:
            answers.setdefault(request.connection, bytearray()).extend(answer(request.frame, self._port))
        for connection, data in answers.items():
            try:
                complete = connection.send(data) == len(data)
            except OSError:
                complete = False
            if not complete:
                connection.close()


def answer(frame: bytes, port: int) -> bytes:
    """The response frame: Produce v7 to one partition, Metadata v4 of the named topics, else ApiVersions v0."""
    key, version, correlation, client_length = struct.unpack_from(">hhih", frame)
    at = 10 + max(client_length, 0)
    if key == PRODUCE:
        topic, _ = text(frame, at + 12)  # after transactional id, acks, timeout, topic count
        body = struct.pack(">i", 1) + topic + struct.pack(">iihqqqi", 1, 0, 0, 0, -1, 0, 0)
    elif key == METADATA:
        (topics,) = struct.unpack_from(">i", frame, at)
        body = struct.pack(">iiih9sihhii", 0, 1, 0, 9, b"127.0.0.1", port, -1, -1, 0, max(topics, 0))
        at += 4
        for _ in range(topics):
            topic, at = text(frame, at)
            body += b"\0\0" + topic + ONE_PARTITION
    else:
        body = struct.pack(">hi", 0 if version == 0 else 35, len(ADVERTISED))
        body += b"".join(struct.pack(">hhh", *entry) for entry in ADVERTISED)
    return struct.pack(">ii", len(body) + 4, correlation) + body


def text(frame: bytes, at: int) -> tuple[bytes, int]:
    """A string with its length in front, and where it ends."""
    end = at + 2 + int.from_bytes(frame[at : at + 2], "big")
    return frame[at:end], end


if __name__ == "__main__":
    trio.run(FloorServer(int(sys.argv[1]), Path(sys.argv[2])).run)
