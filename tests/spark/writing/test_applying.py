"""Drivers that apply one decision, against a leader that refuses, forgets answers and gets requests late."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.spark.writing.applying import IN_FLIGHT_MAX, PartitionApplication
from gnomon.wire.kafka.errors import ErrorCode

SEQUENCES_KNOWN = 5


class Leader:
    """The checks of a leader for one producer: by epoch and sequence, where a batch is one sequence."""

    def __init__(self, *, forgot: bool) -> None:
        self.log: list[tuple[int, int]] = []
        self.epoch, self.last = (-1, -1) if forgot else (0, 7)

    def append(self, epoch: int, sequence: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == self.epoch:
            if self.last - SEQUENCES_KNOWN < sequence <= self.last:
                return ErrorCode.NONE
            if sequence != self.last + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif self.epoch >= 0 and sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.epoch, self.last = epoch, sequence
        self.log.append((epoch, sequence))
        return ErrorCode.NONE


class Driver:
    """Sends requests, which a connection delivers in order, answers, loses, or delivers after its end."""

    def __init__(self, random: Random, leader: Leader, late: list[tuple[int, int]], epoch: int, batches: int) -> None:
        self.random, self.leader, self.late = random, leader, late
        self.epoch, self.application = epoch, PartitionApplication(batches)
        self.sent: deque[int] = deque()

    def step(self) -> None:
        batch = self.application.next() if self.random.random() < 0.6 else None
        if batch is not None:
            self.sent.append(batch)
            assert len(self.sent) <= IN_FLIGHT_MAX
        elif self.sent:
            self.deliver()

    def deliver(self) -> None:
        chance = self.random.random()
        if chance < 0.1:
            self.leave()
            while self.sent:
                self.sent.popleft()
                self.application.answered(None)
        elif chance < 0.25:
            self.sent.popleft()
            self.application.answered(ErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            self.application.answered(self.leader.append(self.epoch, self.sent.popleft()))

    def leave(self) -> None:
        """The connection ends; some of its requests reach the leader later."""
        self.late += [(self.epoch, batch) for batch in self.sent][: self.random.randrange(len(self.sent) + 1)]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 25), st.booleans())
def test_each_batch_is_applied_once_and_in_order(seed: int, batches: int, forgot: bool) -> None:
    random = Random(seed)
    leader, late = Leader(forgot=forgot), []
    for epoch in (1, 2, 3):
        drivers = [Driver(random, leader, late, epoch, batches) for _ in range(random.randint(1, 3))]
        while not any(driver.application.is_done for driver in drivers):
            chosen = random.randrange(len(drivers))
            if random.random() < 0.02:
                drivers[chosen].leave()
                drivers[chosen] = Driver(random, leader, late, epoch, batches)
            drivers[chosen].step()
            if late and random.random() < 0.2:
                leader.append(*late.pop(random.randrange(len(late))))
        for driver in drivers:
            driver.leave()
        done = [(each, batch) for each in range(1, epoch + 1) for batch in range(batches)]
        assert leader.log == done


def test_a_leader_that_refused_a_batch_is_not_believed_about_the_next() -> None:
    application = PartitionApplication(4)
    assert application.next() == 0
    assert application.next() is None  # the first is sent alone
    application.answered(ErrorCode.NONE)
    assert [application.next() for _ in range(4)] == [1, 2, 3, None]
    application.answered(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert application.next() is None
    application.answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    application.answered(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert (application.applied, application.next()) == (1, 1)


def test_five_batches_are_in_flight_and_each_answer_makes_room_for_one() -> None:
    """A leader recognizes the last five batches of a producer: the repeat of a sixth one would be out of order."""
    application = PartitionApplication(20)
    application.next()
    application.answered(ErrorCode.NONE)
    assert [application.next() for _ in range(7)] == [1, 2, 3, 4, 5, None, None]
    for batch in range(6, 20):
        application.answered(ErrorCode.NONE)
        assert [application.next(), application.next()] == [batch, None]


def test_a_newer_epoch_means_that_all_is_applied() -> None:
    application = PartitionApplication(3)
    application.next()
    application.answered(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert application.is_done


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_another_error_is_final(code: ErrorCode) -> None:
    application = PartitionApplication(3)
    application.next()
    application.answered(code)
    assert (application.failure, application.next(), application.is_done) == (code, None, False)
