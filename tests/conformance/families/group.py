"""Members of a group, each polling in a thread of its own, and a producer that sends meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from families.family import Consumer, Family, Record

SETTLED_SECONDS = 40


def wait_until(condition: Callable[[], bool], what: str, seconds: float = SETTLED_SECONDS) -> None:
    """Returns as soon as the condition holds.

    Raises:
        AssertionError: the condition did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def read(consumer: Consumer, count: int, seconds: float = 20) -> list[Record]:
    """Polls until this many records have come."""
    records: list[Record] = []
    deadline = time.monotonic() + seconds
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {seconds} s"
        records += consumer.poll(0.2)
    return records


class Member:
    """Polls and commits until it is closed."""

    def __init__(self, open_consumer: Callable[[], Consumer]) -> None:
        self.records: list[Record] = []
        self.owned: list[frozenset[int]] = [frozenset()]
        """The partitions that it owned, after each change."""
        self.error: BaseException | None = None
        self._open = open_consumer
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            consumer = self._open()
            try:
                while not self._closing.is_set():
                    if records := consumer.poll(0.1):
                        self.records += records
                        consumer.commit()
                    if (owned := consumer.owned()) != self.owned[-1]:
                        self.owned.append(owned)
            finally:
                consumer.close()
        except BaseException as error:  # the test's thread raises it
            self.error = error

    def close(self) -> None:
        self._closing.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a member does not close"
        if self.error is not None:
            raise self.error


def settle(members: Sequence[Member], partitions: int) -> None:
    """Waits until each partition has exactly one owner, and each member owns some."""

    def settled() -> bool:
        for member in members:
            if member.error is not None:
                raise member.error
        owned = [member.owned[-1] for member in members]
        return all(owned) and sorted(each for some in owned for each in some) == list(range(partitions))

    try:
        wait_until(settled, f"{len(members)} members own {partitions} partitions")
    except AssertionError as error:
        raise AssertionError(f"{error}: {[member.owned for member in members]}") from None


class Stream:
    """Sends numbers to the partitions of a topic in turn until it is closed."""

    def __init__(self, family: Family, topic: str, partitions: int, idempotent: bool | None = None) -> None:
        self.sent = 0
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(family, topic, partitions, idempotent))
        self._thread.start()

    def _run(self, family: Family, topic: str, partitions: int, idempotent: bool | None) -> None:
        try:
            producer = family.producer(idempotent=idempotent)
            while not self._closing.wait(0.002):
                producer.send(topic, b"%d" % self.sent, partition=self.sent % partitions)
                self.sent += 1
            producer.flush()
            producer.close()
        except BaseException as error:  # the test's thread raises it
            self._error = error

    def close(self) -> int:
        """Stops sending and waits for the answers; returns the number of records sent.

        Raises:
            BaseException: the error that the producer raised.
        """
        self._closing.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "the producer does not end"
        if self._error is not None:
            raise self._error
        return self.sent
