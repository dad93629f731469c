"""The replication protocol between the broker of a source and a broker that leads shadows of it. Pure.

The source's broker opens the stream `open_replication` and calls `replicate` with numbered frames. Each item of the
stream is an ack: the number of the last frame that was received, and a nack for each shadow's partition that did not
take entries.

1. A frame is sent to a broker only if fewer than WINDOW_BYTES bytes and FRAMES_MAX frames to it are unacknowledged, for
   all shadows that it leads together. This bounds the memory that a slow, paused or vanished broker costs.
2. Unacknowledged frames leave the window when their connection is lost.
3. The receiver acknowledges at once when more than a quarter of the window is unacknowledged, otherwise after
   ACK_SECONDS.
4. A malformed frame is refused as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from gnomon.bookie.ids import EntryId, SessionId
from gnomon.broker.replication.outbox import RUNS_MAX, EntryRun
from gnomon.broker.shadow.image import ReplicatedEntry
from gnomon.client.protocol import NUMBER_MAX
from gnomon.log.entry import Offset
from gnomon.runtime.backoff import Backoff

WINDOW_BYTES = 4 << 20
"""The traffic of 0.1 s of a partition that takes 40 MB/s: up to that round trip, entries are sent with their ids."""
FRAMES_MAX = 256
ACK_SECONDS = 0.05
RECONNECT = Backoff(0.1, 5.0)
ITEM_BYTES = 100
"""The approximate size of a message without runs, and of a run."""


class MalformedReplication(ValueError):
    """A frame or an ack has another form than the protocol's; the text says which form is expected."""


class Replicate(NamedTuple):
    """A message: runs of one partition, and the shadows that they are for."""

    shadows: list[bytes]
    """The ids of the shadows' topics."""
    partition: int
    runs: Sequence[EntryRun]
    """In the order of the log."""
    entries: Sequence[bytes | None]
    """The last entries of the runs, as bookies store them; None for an entry that is sent as an id alone."""

    @property
    def size_bytes(self) -> int:
        """The approximate size in a frame."""
        return sum(len(entry) for entry in self.entries if entry is not None) + ITEM_BYTES * (len(self.runs) + 1)

    def encode(self) -> list[Any]:
        """A run is segment, session, first and last entry, first and next offset, size and last add confirmed."""
        runs = [
            [run.segment, run.session, run.first, run.last, run.offset, run.next_offset, run.size_bytes, run.last]
            for run in self.runs
        ]
        return [self.shadows, self.partition, runs, list(self.entries)]


class ReceivedMessage(NamedTuple):
    """A `Replicate` as the receiving side takes it: the last entry of each run, distinct shadows."""

    shadows: list[bytes]
    partition: int
    entries: list[ReplicatedEntry]

    @classmethod
    def decode(cls, item: Any) -> ReceivedMessage:
        """Checks and decodes a message.

        Raises:
            MalformedReplication: it has another form.
        """
        shadows, partition, runs, entries = _list(item, 4)
        if len(_list(runs)) > RUNS_MAX:
            raise MalformedReplication(f"a message has at most {RUNS_MAX} runs")
        if not all(type(shadow) is bytes and len(shadow) == 16 for shadow in _list(shadows)):
            raise MalformedReplication("shadows are named by their ids")
        if not all(entry is None or type(entry) is bytes for entry in _list(entries)):
            raise MalformedReplication("entries are bytes")
        if type(partition) is not int or not 0 <= partition < NUMBER_MAX:
            raise MalformedReplication("a partition has a number")
        last_entries = [_last_entry(run) for run in runs]
        if entries and last_entries:
            *earlier, stored = entries
            last_entries[-1] = last_entries[-1]._replace(stored=stored, earlier=tuple(earlier))
        return cls(list(dict.fromkeys(shadows)), partition, last_entries)


def decode_frame(args: Any) -> tuple[int, list[ReceivedMessage]]:
    """The number and the messages of a frame.

    Raises:
        MalformedReplication: it has another form.
    """
    number, items = _list(args, 2)
    if type(number) is not int:
        raise MalformedReplication("a frame is a number and a list")
    return number, [ReceivedMessage.decode(item) for item in _list(items)]


def _last_entry(run: Any) -> ReplicatedEntry:
    numbers = _list(run, 8)
    if not all(type(number) is int and -1 <= number < NUMBER_MAX for number in numbers):
        raise MalformedReplication("a run is eight numbers")
    segment, session, first, last, offset, next_offset, _, confirmed = numbers
    if first > last or offset > next_offset:
        raise MalformedReplication("a run ends before it begins")
    return ReplicatedEntry(
        Offset(segment), SessionId(session), EntryId(last), EntryId(confirmed), next_offset=Offset(next_offset)
    )


def _list(value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise MalformedReplication(f"a list of {length or 'some'} was expected")
    return value


class NackReason(Enum):
    """The reason why a shadow did not take entries."""

    NOT_LEADER = "not_leader"
    """This broker does not lead the shadow, or does not know it yet."""
    NO_READER = "no_reader"
    """The shadow is not open here, so that ids are enough for it."""
    REFUSED = "refused"
    """The entries contradict what this broker knows of the source."""


class Nack(NamedTuple):
    """One partition of a shadow that did not take entries."""

    shadow: bytes
    partition: int
    reason: NackReason
    text: str


class Ack(NamedTuple):
    """The frames up to this one were received; `nacks` are the exceptions."""

    frame: int
    nacks: Sequence[Nack]

    def encode(self) -> list[Any]:
        """The ack as an item of the stream."""
        return [self.frame, [[nack.shadow, nack.partition, nack.reason.value, nack.text] for nack in self.nacks]]

    @classmethod
    def decode(cls, item: Any) -> Ack:
        """Undoes `encode`.

        Raises:
            ValueError: the item has another form.
        """
        frame, nacks = _list(item, 2)
        if type(frame) is not int:
            raise MalformedReplication("a frame has a number")
        return cls(frame, [_nack(nack) for nack in _list(nacks)])


def _nack(item: Any) -> Nack:
    shadow, partition, reason, text = _list(item, 4)
    if (type(shadow), type(partition), type(text)) != (bytes, int, str):
        raise MalformedReplication("a nack is the id of a shadow, a partition, a reason and a text")
    return Nack(shadow, partition, NackReason(reason), text)


class OpenFrame:
    """A frame that is being filled for one broker."""

    def __init__(self, room_bytes: int) -> None:
        """`room_bytes` is the room that the window has."""
        self.messages: list[Replicate] = []
        self._room_bytes = room_bytes

    def inline(self, fresh: Sequence[bytes], each_bytes_max: int) -> Sequence[bytes | None]:
        """The entries to send with their ids, None for each that is too large; empty if the others exceed the room."""
        entries = [value if len(value) <= each_bytes_max else None for value in fresh]
        size_bytes = sum(len(value) for value in entries if value is not None)
        if size_bytes > self._room_bytes:
            return ()
        self._room_bytes -= size_bytes
        return entries


class Window:
    """The sending side of one connection: the frames that are not acknowledged yet."""

    def __init__(self) -> None:
        self.frame = 0
        """The number of the last frame."""
        self.bytes = 0
        """The bytes that are not acknowledged yet."""
        self._frames: deque[tuple[int, int]] = deque()
        self._failures = 0

    @property
    def room_bytes(self) -> int:
        """The bytes that may be sent now; 0 if no frame may be sent."""
        return max(0, WINDOW_BYTES - self.bytes) if len(self._frames) < FRAMES_MAX else 0

    def sent(self, size_bytes: int) -> None:
        """Counts a frame that is sent now."""
        self.frame += 1
        self._frames.append((self.frame, size_bytes))
        self.bytes += size_bytes

    def acked(self, frame: int) -> None:
        """Removes the frames up to this one."""
        self._failures = 0
        while self._frames and self._frames[0][0] <= frame:
            self.bytes -= self._frames.popleft()[1]

    def lost(self) -> float:
        """Removes all frames: there is no connection. Returns the seconds until the next attempt to connect."""
        self._frames.clear()
        self.bytes = 0
        self._failures += 1
        return RECONNECT.seconds(self._failures)


class PendingAck:
    """The receiving side of one connection: the frames that it has not acknowledged yet, and the nacks for them."""

    def __init__(self) -> None:
        self._frame = self._acked_frame = 0
        self._bytes = 0
        self._nacks: dict[tuple[bytes, int], Nack] = {}

    @property
    def urgent(self) -> bool:
        """Whether a quarter of the window is unacknowledged."""
        return self._bytes > WINDOW_BYTES // 4 or self._frame - self._acked_frame > FRAMES_MAX // 4

    def received(self, frame: int, size_bytes: int) -> None:
        """Adds a frame."""
        self._frame = frame
        self._bytes += size_bytes

    def applied(self, message: ReceivedMessage, nacks: Iterable[Nack]) -> None:
        """Adds the outcome of a message: replaces earlier NO_READER nacks of its shadows, but no NOT_LEADER nack."""
        for shadow in message.shadows:
            before = self._nacks.get((shadow, message.partition))
            if before is not None and before.reason is NackReason.NO_READER:
                del self._nacks[shadow, message.partition]
        for nack in nacks:
            before = self._nacks.get((nack.shadow, nack.partition))
            if before is None or before.reason is not NackReason.NOT_LEADER:
                self._nacks[nack.shadow, nack.partition] = nack

    def take(self) -> Ack:
        """The ack of everything that was received."""
        ack = Ack(self._frame, list(self._nacks.values()))
        self._nacks = {}
        self._acked_frame, self._bytes = self._frame, 0
        return ack
