"""A group coordinator over partitions in memory, on virtual time."""

from __future__ import annotations

import trio
import trio.testing
from memory_logs import MemoryLogs, VirtualWorld

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


class Broker:
    """A coordinator that can be restarted on the same logs."""

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
