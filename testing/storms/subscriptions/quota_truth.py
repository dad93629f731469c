"""Judges backlog quotas and retention of one partition by the actions of its clients. Pure; times are seconds.

1. Producers are refused only while the subscription that the refusal names may have a backlog beyond the quota.
2. Records are dropped only while a subscription may have such a backlog, and only those beyond the quota. A drop goes
   segment by segment, so its first steps may drop records that all subscriptions have read.
3. A record whose acknowledgement is certainly stored is not reported as missed.
4. In the end every accepted record has come to each subscription, or was reported as missed.

A position is certain STORED_SECONDS after its acknowledgement, unless its owner was disturbed in between. All
records have the same size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STORED_SECONDS = 3.0
"""A broker has stored an acknowledgement after this time."""


@dataclass(slots=True)
class QuotaReader:
    """The history of one subscription."""

    received: set[int] = field(default_factory=set)
    missed: set[int] = field(default_factory=set)
    positions: list[tuple[float, int]] = field(default_factory=list)
    """The acknowledged positions with their times, the oldest first."""

    def certain(self, at: float) -> int:
        """The position that was certainly stored at a time."""
        return max((position for acked, position in self.positions if acked <= at - STORED_SECONDS), default=0)


class QuotaTruth:
    """The history of one partition; see the module."""

    def __init__(self, quota_records: int, look_seconds: float) -> None:
        """Begins with an empty partition.

        Args:
            quota_records: this many records are within the quota with any way of counting.
            look_seconds: the highest age of a broker's measurement.
        """
        self.accepted: set[int] = set()
        self._quota_records = quota_records
        self._look_seconds = look_seconds
        self._readers: dict[str, QuotaReader] = {}
        self._judged_from = float("inf")
        self._start = 0
        self._start_asked = float("inf")

    def judge_from(self, now: float) -> None:
        """Judges measurements from now on: brokers reach all services, and each owner stores acknowledgements."""
        self._judged_from = now

    def add(self, topic: str) -> None:
        """Adds the subscription of a topic, before the first record."""
        self._readers[topic] = QuotaReader()

    def got(self, topic: str, offset: int) -> None:
        """A record came; so no position beyond it is stored."""
        reader = self._readers[topic]
        reader.received.add(offset)
        reader.positions = [each for each in reader.positions if each[1] <= offset]

    def acked(self, topic: str, offset: int, now: float) -> None:
        """The subscription has acknowledged all records up to and including this one."""
        self._readers[topic].positions.append((now, offset + 1))

    def disturbed(self, topic: str, since: float) -> None:
        """The owner may have lost acknowledgements that it had not stored at `since`."""
        reader = self._readers[topic]
        reader.positions = [each for each in reader.positions if each[0] <= since - STORED_SECONDS]

    def told(self, topic: str, first: int, end: int, now: float) -> None:
        """The subscription got a report that records are missed.

        Raises:
            AssertionError: rule 3 does not hold.
        """
        reader = self._readers[topic]
        reader.missed.update(range(first, end))
        certain = reader.certain(now)
        assert end >= certain, (
            f"{topic} had acknowledged all below {certain}, and {first} to {end} are reported as missed"
        )

    def refused(self, named: str, end: int, sent: float) -> None:
        """A producer was refused for a topic's subscription, on a request sent at `sent`; the log ends at `end`.

        Raises:
            AssertionError: rule 1 does not hold.
        """
        measured = sent - self._look_seconds
        certain = self._readers[named].certain(measured)
        assert measured < self._judged_from or end - certain > self._quota_records, (
            f"a producer is refused for {named}, which had acknowledged all below {certain}; the log ends at {end}"
        )

    def starts(self, start: int, end: int, asked: float) -> None:
        """A request sent at `asked` returned these start and end offsets of the log.

        Raises:
            AssertionError: rule 2 does not hold.
        """
        if start > self._start:
            measured = self._start_asked - self._look_seconds
            certain = {topic: reader.certain(measured) for topic, reader in self._readers.items()}
            if measured >= self._judged_from:
                assert end - min(certain.values()) > self._quota_records, (
                    f"records below {start} were dropped; acknowledged below {certain}; the log ends at {end}"
                )
                assert start <= end - self._quota_records, f"{end - start} records are left, so too many were dropped"
        self._start, self._start_asked = start, asked

    def missing(self, topic: str) -> list[int]:
        """The accepted records that neither came to a topic's subscription nor were reported as missed."""
        reader = self._readers[topic]
        return sorted(self.accepted - reader.received - reader.missed)

    def missed(self, topic: str) -> set[int]:
        """The records that were reported to a topic's subscription as missed."""
        return self._readers[topic].missed
