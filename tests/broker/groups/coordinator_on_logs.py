"""A group coordinator over partitions in memory, on virtual time."""

from __future__ import annotations

import random

import trio
import trio.testing

from gnomon.broker.groups.coordinator import GroupCoordinator, partition_for
from gnomon.broker.groups.settings import GroupSettings
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.timers import Timers
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


class VirtualWorld:
    """A clock on Trio's virtual time, and seeded randomness."""

    def __init__(self):
        self.clock = self

    def monotonic(self):
        return trio.current_time()

    def wall_ms(self):
        return 1_700_000_000_000 + int(trio.current_time() * 1000)

    def random(self, name):
        return random.Random(name)


class MemoryLog:
    """One partition: batches become durable a moment after they are appended, unless `held`.

    It is confirmed at once, unless `silent`.
    """

    def __init__(self, nursery):
        self.nursery = nursery
        self.records = []
        self.start = self.next = 0
        self.waiting = []
        self.held = False
        self.reads = 0
        self.unreadable = None
        self.certain = self.ours = True
        self.silent = False
        self.asked = []

    async def read_all(self):
        self.reads += 1
        await trio.lowlevel.checkpoint()
        if self.unreadable is not None:
            raise self.unreadable
        for record in list(self.records):
            yield record

    def append(self, records, done):
        self.waiting.append((records, done))
        if not self.held:
            self.nursery.start_soon(self.flush)

    async def flush(self):
        waiting, self.waiting = self.waiting, []
        for records, done in waiting:
            base = self.next
            self.records += [(base + index, *record) for index, record in enumerate(records)]
            self.next += len(records)
            done(base, None)

    def fail(self, error):
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(None, error)

    def confirm(self, done):
        if self.silent:
            self.asked.append(done)
        else:
            done(self.certain)

    def goes_on(self):
        return self.ours

    def trim(self, before_offset):
        self.start = before_offset
        self.records = [record for record in self.records if record[0] >= before_offset]


class MemoryLogs:
    def __init__(self, nursery):
        self.nursery = nursery
        self.logs = {}
        self.refused = None

    def log(self, partition):
        return self.logs.setdefault(partition, MemoryLog(self.nursery))

    async def open(self, partition):
        if self.refused is not None:
            raise self.refused
        return self.log(partition)

    async def used(self):
        return [partition for partition, log in self.logs.items() if log.records]


class Broker:
    """A coordinator that can be asked and started anew on the same logs."""

    def __init__(self, nursery):
        self.nursery = nursery
        self.logs = MemoryLogs(nursery)
        self.settings = GroupSettings(initial_rebalance_delay_ms=0)
        self.leads = self.lease_lives = True

    async def start(self):
        timers = Timers(VirtualWorld().clock)
        self.coordinator = GroupCoordinator(
            VirtualWorld(),
            timers,
            self.logs,
            lambda: 50,
            lambda: self.settings,
            SilentLogger(),
            lambda partition: self.leads,
            lambda: self.lease_lives,
        )
        self.nursery.start_soon(timers.run)
        await self.nursery.start(self.coordinator.run)

    def tell(self, request, version):
        answers = []
        self.coordinator.handle(request, version, "client", "/host", answers.append)
        return answers

    async def ask(self, request, version):
        answers, answered = [], trio.Event()

        def reply(response):
            answers.append(response)
            answered.set()

        self.coordinator.handle(request, version, "client", "/host", reply)
        await answered.wait()
        (answer,) = answers
        return answer

    async def offset(self, group, partition=0):
        (found,) = (await self.ask(fetch(group, partition), 8)).groups
        return found.error_code or found.topics[0].partitions[0].committed_offset

    def log_of(self, group):
        return self.logs.log(partition_for(group, 50))


def commit(group, offset, partition=0):
    part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[part])])


def error_of(answer):
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetch(group, partition=0):
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


def neighbour(group):
    """Another group of the same partition."""
    return next(name for name in (f"n{i}" for i in range(1000)) if partition_for(name, 50) == partition_for(group, 50))


def join(group="g", session_ms=10_000):
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def serve(scenario):
    """Runs `scenario(broker)` on virtual time."""

    async def main():
        async with trio.open_nursery() as nursery:
            broker = Broker(nursery)
            await broker.start()
            await scenario(broker)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
