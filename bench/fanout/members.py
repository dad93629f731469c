"""Program: many Kafka consumers, each with a connection and a group of its own, on one thread.

The consumers use Kafka's protocol with the timing of Java's consumer: a Fetch waits 500 ms, a heartbeat follows every
3 s, and positions are committed every 5 s. The program reports when all have joined. Then the bench asks for a number
of deliveries: the program answers with the latencies once that many have arrived, or `patience_seconds` have passed.

Each group's coordinator is the broker that the consumer reads from, so that one connection is enough: the program tries
group names until it finds enough names with that coordinator.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from array import array
from itertools import count
from struct import pack, unpack_from

from bench.child import heard, say
from bench.fanout.stamp import quantile, sent_at

FETCH, LIST_OFFSETS, COMMIT, FIND, JOIN, HEARTBEAT, SYNC = 1, 2, 8, 10, 11, 12, 14
VERSIONS = {FETCH: 4, LIST_OFFSETS: 1, COMMIT: 2, FIND: 1, JOIN: 2, HEARTBEAT: 1, SYNC: 1}
FETCH_WAIT_MS, FETCH_BYTES = 500, 1 << 20
HEARTBEAT_SECONDS, COMMIT_SECONDS = 3.0, 5.0
SESSION_MS = 45_000
JOINING_MAX = 50
"""Members that join at the same time."""
BATCH_HEAD_BYTES = 12
LOOK_SECONDS = 0.1


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def request(key: int, body: bytes) -> bytes:
    head = pack(">hhi", key, VERSIONS[key], key) + text("bench") + body
    return pack(">i", len(head)) + head


class Latencies:
    """The latencies of all deliveries to all consumers."""

    def __init__(self, value_at: int) -> None:
        self.value_at = value_at
        self.seconds = array("f")


class GroupMember:
    """One consumer, one request at a time."""

    def __init__(self, port: int, topic: str, group: str, position: int, latencies: Latencies) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.joined = False
        self._topic, self._group = topic, text(group)
        self._position = self._committed = position
        self._latencies = latencies
        self._received = bytearray()
        self._member, self._generation = b"", 0
        self._heartbeat_due = self._commit_due = 0.0
        subscription = pack(">hi", 0, 1) + text(topic) + pack(">i", -1)
        protocols = pack(">i", 1) + text("range") + pack(">i", len(subscription)) + subscription
        self._send(JOIN, self._group + pack(">ii", SESSION_MS, SESSION_MS) + text("") + text("consumer") + protocols)

    def _send(self, key: int, body: bytes) -> None:
        self.socket.sendall(request(key, body))

    def receive(self) -> None:
        """Handles the received bytes, and sends the next request."""
        more = self.socket.recv(1 << 16)
        assert more, "the broker closed the connection"
        self._received += more
        if len(self._received) >= 4:
            size, key = unpack_from(">ii", self._received)
            if len(self._received) >= size + 4:
                answer = bytes(self._received[8 : size + 4])
                self._received.clear()
                getattr(self, f"_on_{key}")(answer)

    def _next(self) -> None:
        now = time.monotonic()
        mine = self._group + pack(">i", self._generation) + self._member
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + HEARTBEAT_SECONDS
            self._send(HEARTBEAT, mine)
        elif now >= self._commit_due and self._position != self._committed:
            self._commit_due, self._committed = now + COMMIT_SECONDS, self._position
            at = pack(">ii", 1, 0) + pack(">q", self._position) + text("")
            self._send(COMMIT, mine + pack(">qi", -1, 1) + text(self._topic) + at)
        else:
            at = pack(">iiqi", 1, 0, self._position, FETCH_BYTES)
            self._send(FETCH, pack(">iiiibi", -1, FETCH_WAIT_MS, 1, FETCH_BYTES, 0, 1) + text(self._topic) + at)

    def _on_11(self, answer: bytes) -> None:
        error, self._generation = unpack_from(">hi", answer, 4)
        assert error == 0, f"JoinGroup was answered with error code {error}"
        at = 10
        for _ in ("protocol", "leader"):
            at += 2 + unpack_from(">h", answer, at)[0]
        self._member = answer[at : at + 2 + unpack_from(">h", answer, at)[0]]
        own = pack(">hi", 0, 1) + text(self._topic) + pack(">iii", 1, 0, -1)
        shares = pack(">i", 1) + self._member + pack(">i", len(own)) + own
        self._send(SYNC, self._group + pack(">i", self._generation) + self._member + shares)

    def _on_14(self, answer: bytes) -> None:
        assert unpack_from(">h", answer, 4)[0] == 0, "SyncGroup was answered with an error"
        now = time.monotonic()
        self.joined, self._heartbeat_due, self._commit_due = True, now + HEARTBEAT_SECONDS, now + COMMIT_SECONDS
        self._next()

    def _on_12(self, answer: bytes) -> None:
        assert unpack_from(">h", answer, 4)[0] == 0, "Heartbeat was answered with an error"
        self._next()

    def _on_8(self, answer: bytes) -> None:
        assert unpack_from(">h", answer, len(answer) - 2)[0] == 0, "OffsetCommit was answered with an error"
        self._next()

    def _on_1(self, answer: bytes) -> None:
        at = 8 + 2 + len(self._topic) + 8
        (error,) = unpack_from(">h", answer, at)
        assert error == 0, f"Fetch was answered with error code {error}"
        at += 2 + 8 + 8
        at += 4 + 16 * max(0, unpack_from(">i", answer, at)[0]) + 4
        now, latencies = time.monotonic(), self._latencies
        while at < len(answer):
            base, size = unpack_from(">qi", answer, at)
            if base >= self._position:
                latencies.seconds.append(now - sent_at(answer, at + latencies.value_at))
                self._position = base + 1
            at += BATCH_HEAD_BYTES + size
        self._next()


def exchange(connection: socket.socket, key: int, body: bytes) -> bytes:
    """A request and its answer, after the correlation id."""
    connection.sendall(request(key, body))
    with connection.makefile("rb") as file:
        (size,) = unpack_from(">i", file.read(4))
        return file.read(size)[4:]


def end_of(connection: socket.socket, topic: str) -> int:
    """The offset at the end of a topic's partition."""
    body = pack(">ii", -1, 1) + text(topic) + pack(">iiq", 1, 0, -1)
    offset: int = unpack_from(">q", answer := exchange(connection, LIST_OFFSETS, body), len(answer) - 8)[0]
    return offset


def coordinated_here(connection: socket.socket, port: int, group: str) -> bool:
    """Whether this broker is the group's coordinator."""
    while True:
        answer = exchange(connection, FIND, text(group) + b"\0")
        if unpack_from(">h", answer, 4)[0] == 0:
            return bool(unpack_from(">i", answer, len(answer) - 4)[0] == port)
        time.sleep(0.1)


class Members:
    """All consumers on one epoll."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._members: dict[int, GroupMember] = {}

    def join(self, waiting: list[tuple[int, str, str, int, Latencies]]) -> None:
        """Makes all join their groups, some at a time; joined members are served meanwhile."""
        joining: set[GroupMember] = set()
        waiting.reverse()
        while waiting or joining:
            while waiting and len(joining) < JOINING_MAX:
                member = GroupMember(*waiting.pop())
                joining.add(member)
                self._members[member.socket.fileno()] = member
                self._epoll.register(member.socket, select.EPOLLIN)
            self._turn()
            joining = {member for member in joining if not member.joined}

    def serve(self, latencies: Latencies, patience_seconds: float) -> None:
        """Serves until the requested number of deliveries has arrived, or the time after the question is up."""
        self._epoll.register(sys.stdin, select.EPOLLIN)
        wanted, deadline = sys.maxsize, float("inf")
        while len(latencies.seconds) < wanted and time.monotonic() < deadline:
            if self._turn():
                wanted, deadline = heard(sys.stdin.readline()), time.monotonic() + patience_seconds

    def _turn(self) -> bool:
        """Handles the ready sockets; returns whether a question arrived."""
        asked = False
        for number, _ in self._epoll.poll(LOOK_SECONDS):
            if number == sys.stdin.fileno():
                asked = True
            else:
                self._members[number].receive()
        return asked


def groups_at(places: list[tuple[int, str, int]], latencies: Latencies) -> list[tuple[int, str, str, int, Latencies]]:
    """Port, topic, group and first offset of each future consumer."""
    waiting = []
    for port, topic, members in places:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            end = end_of(connection, topic)
            names = (f"group-{port}-{number}" for number in count())
            fitting = (name for name in names if coordinated_here(connection, port, name))
            waiting += [(port, topic, next(fitting), end, latencies) for _ in range(members)]
    return waiting


def main() -> None:
    task = json.loads(sys.argv[1])
    latencies, members = Latencies(task["value_at"]), Members()
    waiting = groups_at(task["places"], latencies)
    say({"groups": len(waiting)})
    began = time.monotonic()
    members.join(waiting)
    say({"seconds": time.monotonic() - began})
    cpu = time.process_time()
    members.serve(latencies, task["patience_seconds"])
    ordered = sorted(latencies.seconds)
    figures = {f"p{part}_ms": quantile(ordered, part / 100) * 1e3 for part in (50, 99)}
    mean_ms = sum(ordered) / max(1, len(ordered)) * 1e3
    say({"deliveries": len(ordered), **figures, "mean_ms": mean_ms, "cpu_s": time.process_time() - cpu})
    heard(sys.stdin.readline())


if __name__ == "__main__":
    main()
