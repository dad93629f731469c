"""Program: produces at a steady rate over one connection, and reports each request's wait for its answer.

With `held` the program sends one request, and continues after a line from the bench. Each request is sent on schedule,
whether or not the request before it was answered (open loop). After another line (`"stop"`) the program sends nothing
more, waits for the last answer, and reports `{"sent": n, "waits": [[sent_at, seconds], …]}`.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import deque
from struct import unpack_from

from bench.child import heard, say
from bench.fanout.stamp import StampedFrame

LAST_ANSWER_SECONDS = 20.0
LOOK_SECONDS = 0.1


def main() -> None:
    task = json.loads(sys.argv[1])
    frame = StampedFrame(task["topic"], task["partition"], task["records"], task["value_bytes"])
    with socket.create_connection(("127.0.0.1", task["port"])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(frame.stamped())  # the leader opens its partition for the first one
        received = bytearray()
        while not _answered(connection, received):
            pass
        say({"begun": time.monotonic()})
        if task.get("held"):
            heard(sys.stdin.readline())
        waits = _pace(connection, frame, task["interval_seconds"], task.get("count", sys.maxsize))
    say({"sent": len(waits), "waits": waits})
    heard(sys.stdin.readline())


def _pace(
    connection: socket.socket, frame: StampedFrame, interval_seconds: float, count_max: int
) -> list[tuple[float, float]]:
    """Sends until a stop or `count_max`; returns the times of all requests."""
    sent: deque[float] = deque()
    waits: list[tuple[float, float]] = []
    received, begun, count, stop_at = bytearray(), time.monotonic(), 0, float("inf")
    while True:
        now = time.monotonic()
        due = begun + count * interval_seconds if count < count_max else float("inf")
        if now >= due and stop_at == float("inf"):
            sent.append(now)
            connection.sendall(frame.stamped())
            count += 1
            continue
        if stop_at < float("inf") and (not sent or now > stop_at):
            assert not sent, "some requests were never answered"
            return waits
        wait_seconds = LOOK_SECONDS if due < now else min(LOOK_SECONDS, due - now)
        readable, _, _ = select.select([connection, sys.stdin], [], [], wait_seconds)
        if connection in readable:
            for _ in range(_answered(connection, received)):
                at = sent.popleft()
                waits.append((at, time.monotonic() - at))
        if sys.stdin in readable:
            heard(sys.stdin.readline())
            stop_at = now + LAST_ANSWER_SECONDS


def _answered(connection: socket.socket, received: bytearray) -> int:
    """Handles received bytes; returns the number of answers that they complete."""
    more = connection.recv(1 << 16)
    assert more, "the broker closed the connection"
    received += more
    count = 0
    while len(received) >= 4:
        (size,) = unpack_from(">i", received)
        if len(received) < size + 4:
            break
        (name_bytes,) = unpack_from(">h", received, 12)
        (error,) = unpack_from(">h", received, 14 + name_bytes + 8)
        assert error == 0, f"a produce was answered with error code {error}"
        del received[: size + 4]
        count += 1
    return count


if __name__ == "__main__":
    main()
