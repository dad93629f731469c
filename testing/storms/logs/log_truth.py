"""Judges one partition by the rules of `log_checker`, and its batches' times, codecs and searches by time. Pure.

1. A batch has the codec that its producer used, or that of the topic.
2. With CreateTime a record has the timestamp of its producer. With LogAppendTime all records of a batch have the time
   of the acknowledgement.
3. A search by time finds the first record at or after the log's start whose timestamp is not earlier.
4. A search for the largest timestamp finds a record that is not older than any record acknowledged before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gnomon.testing.storms.kafka.log_checker import LogHistory, Send, check_log
from gnomon.wire.kafka.compression import Codec

if TYPE_CHECKING:
    from random import Random

MAX_TIMESTAMP: Final = -3
"""The timestamp by which ListOffsets asks for the record with the largest one."""
NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record as a reader got it."""

    offset: int
    value: bytes
    timestamp: int
    codec: int


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """One answer of ListOffsets; the log's start was in [start, start_after] and its end at least `end`."""

    wanted: int
    offset: int
    timestamp: int
    start: int
    start_after: int
    end: int


class LogTruth:
    """The history of one partition in one life of its topic.

    Args:
        append_time: whether the topic has LogAppendTime.
        codec: the codec of the topic; None if it keeps that of the producer.
    """

    def __init__(self, *, append_time: bool, codec: int | None) -> None:
        self.history = LogHistory()
        self.wrong: list[str] = []
        self.end = 0
        """The log certainly has the records below."""
        self._append_time = append_time
        self._codec = codec
        self._sent: dict[bytes, tuple[int, int]] = {}
        """The timestamp and codec of each value."""
        self._given: list[int] = []
        self.known: dict[int, int] = {}
        """The timestamp of each record, by offset, as acknowledgements and readers show it."""
        self._searches: list[TimeSearch] = []

    def send(self, producer: str, value: bytes, timestamp: int, codec: Codec) -> Send:
        """A producer sends a record; its outcome is unknown until it is acknowledged."""
        assert value not in self._sent, f"{value[:40]!r} was sent before"
        self._sent[value] = timestamp, codec
        self._given.append(timestamp)
        return self.history.send(producer, value)

    def acknowledged(self, sends: Sequence[Send], base_offset: int, append_time_ms: int) -> None:
        """A batch was acknowledged; its offset is -1 if the broker found that it is a repeat and does not know more."""
        for index, send in enumerate(sends):
            offset = base_offset + index if base_offset >= 0 else NOWHERE
            send.acknowledged(offset)
            if offset >= 0:
                self.end = max(self.end, offset + 1)
                self._told(offset, append_time_ms if self._append_time else self._sent[send.value][0])
        if base_offset >= 0 and self._append_time != (append_time_ms >= 0):
            self.wrong.append(f"the batch at {base_offset} was acknowledged with the append time {append_time_ms}")

    def read(self, reader: str, records: Sequence[ReadRecord]) -> None:
        """A reader got the next records of the log."""
        for record in records:
            self.history.polled(reader, record.offset, record.value)
            self._check(record)

    def _check(self, record: ReadRecord) -> None:
        sent = self._sent.get(record.value)
        if sent is None:
            return  # `check_log` reports it
        timestamp, codec = sent
        if not self._append_time and record.timestamp != timestamp:
            self.wrong.append(f"offset {record.offset} has timestamp {record.timestamp}, it was sent with {timestamp}")
        expected = codec if self._codec is None else self._codec
        if record.codec != expected:
            self.wrong.append(f"offset {record.offset} has codec {record.codec}, not {expected}")
        self._told(record.offset, record.timestamp)

    def _told(self, offset: int, timestamp: int) -> None:
        before = self.known.setdefault(offset, timestamp)
        if before != timestamp:
            self.wrong.append(f"offset {offset} has timestamp {timestamp}, it was told as {before}")

    def a_time(self, stream: Random) -> int:
        """The timestamp of a record that was sent, drawn; 0 before the first one."""
        return stream.choice(self._given) if self._given else 0

    def searched(self, search: TimeSearch) -> None:
        """A search was answered; `judge` checks it once all timestamps are known."""
        self._searches.append(search)

    def judge(self, final: Sequence[ReadRecord], start: int) -> list[str]:
        """All contradictions, once the whole log was read from its start on."""
        for record in final:
            self._check(record)
        self.history.final = [(record.offset, record.value) for record in final]
        self.history.log_start_offset = max(self.history.log_start_offset, start)
        found = [f"{finding.anomaly.value}: {finding.text}" for finding in check_log(self.history)]
        return [*found, *self.wrong, *filter(None, map(self._misled, self._searches))]

    def _misled(self, search: TimeSearch) -> str:
        told = f"a search for {search.wanted} from {search.start} to {search.end}"
        if search.offset == NOWHERE:
            missed = [at for at in range(search.start_after, search.end) if self._is_found(at, search.wanted)]
            return f"{told} found nothing, and offset {missed[0]} is one" if missed else ""
        if self.known.get(search.offset, search.timestamp) != search.timestamp:
            return f"{told} found {search.offset} at {search.timestamp}, not at {self.known[search.offset]}"
        if search.offset < search.start:
            return f"{told} found offset {search.offset}, below the log's start"
        if search.wanted == MAX_TIMESTAMP:
            larger = [at for at in range(search.start_after, search.end) if self._is_found(at, search.timestamp + 1)]
            return f"{told} found time {search.timestamp}, and offset {larger[0]} has a larger one" if larger else ""
        if search.timestamp < search.wanted:
            return f"{told} found offset {search.offset} with the earlier time {search.timestamp}"
        before = [at for at in range(search.start_after, search.offset) if self._is_found(at, search.wanted)]
        return f"{told} found offset {search.offset}, and {before[0]} comes before it" if before else ""

    def _is_found(self, offset: int, wanted: int) -> bool:
        timestamp = self.known.get(offset)
        return timestamp is not None and (wanted == MAX_TIMESTAMP or timestamp >= wanted)
