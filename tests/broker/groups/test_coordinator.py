from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from gnomon.broker.errors import KafkaError
from gnomon.broker.groups import hosted_shard
from gnomon.broker.groups.coordinator import PARTS_PER_TURN, GroupCoordinator, partition_for
from gnomon.broker.groups.settings import GroupSettings
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.timers import Timers
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
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
    """One partition: batches become durable a moment after they are appended, unless `held`."""

    def __init__(self, nursery):
        self.nursery = nursery
        self.records = []
        self.start = self.next = 0
        self.waiting = []
        self.held = False
        self.reads = 0
        self.unreadable = None

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

    async def start(self):
        timers = Timers(VirtualWorld().clock)
        self.coordinator = GroupCoordinator(
            VirtualWorld(), timers, self.logs, lambda: 50, lambda: self.settings, SilentLogger()
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


@pytest.mark.parametrize(
    ("group", "partition"),
    # What Java's String.hashCode gives: 0, 103, 98262, and Integer.MIN_VALUE, which counts as 0.
    [("", 0), ("g", 3), ("cat", 12), ("polygenelubricants", 0)],
)
def test_groups_lie_in_the_partition_where_kafka_looks_for_them(group, partition):
    assert partition_for(group, 50) == partition


def test_offsets_survive_a_restart_and_are_answered_only_when_durable():
    async def scenario(broker):
        assert await broker.offset("g") == -1
        broker.log_of("g").held = True
        answers = broker.tell(commit("g", 5), 8)
        await trio.sleep(60)
        assert answers == []
        assert await broker.offset("g") == -1
        await broker.log_of("g").flush()
        assert error_of(answers[0]) is ErrorCode.NONE
        await broker.start()
        assert await broker.offset("g") == 5

    serve(scenario)


def test_requests_wait_for_the_shard_to_load_and_keep_their_order():
    async def scenario(broker):
        answers = [broker.tell(commit("g", offset), 8) for offset in range(20)]
        await trio.sleep(1)
        assert await broker.offset("g") == 19
        assert all(error_of(answer) is ErrorCode.NONE for (answer,) in answers)
        assert broker.log_of("g").reads == 1

    serve(scenario)


def test_what_an_answer_brings_about_goes_behind_those_who_wait_for_the_shard():
    async def scenario(broker):
        def next_request(_):
            broker.tell(commit("g", 2), 8)

        broker.coordinator.handle(fetch("g"), 8, "", "", next_request)
        broker.tell(commit("g", 1), 8)
        await trio.sleep(1)
        assert await broker.offset("g") == 2

    serve(scenario)


def test_a_deadline_before_all_others_is_kept():
    async def scenario(broker):
        await broker.ask(join("g", session_ms=60_000), 3)
        other = neighbour("g")
        await broker.ask(join(other, session_ms=10_000), 3)
        await trio.sleep(11)
        # Seen in the log, so that no request makes the coordinator look at its deadlines.
        assert len(broker.log_of("g").records) == 1

    serve(scenario)


def test_a_join_that_is_parked_is_answered_by_a_deadline():
    async def scenario(broker):
        broker.settings = GroupSettings(initial_rebalance_delay_ms=3000)
        start = trio.current_time()
        assert (await broker.ask(join(), 3)).generation_id == 1
        assert trio.current_time() - start == pytest.approx(3, abs=0.1)

    serve(scenario)


def test_a_coordinator_that_drains_keeps_nobody_waiting_for_other_members_and_writes_nothing_of_its_own():
    async def scenario(broker):
        await broker.ask(join("g"), 3)
        parked = broker.tell(join("g"), 3)
        assert parked == []
        log = broker.log_of("g")
        log.held = True
        committed = broker.tell(commit(neighbour("g"), 1), 8)
        written = len(log.records)
        broker.coordinator.drain()
        assert [answer.error_code for answer in parked] == [ErrorCode.NOT_COORDINATOR]
        assert [answer.error_code for answer in broker.tell(join("g"), 3)] == [ErrorCode.NOT_COORDINATOR]
        assert committed == []
        await trio.sleep(60)
        assert len(log.waiting) == 1
        await log.flush()
        assert error_of(committed[0]) is ErrorCode.NONE
        assert len(log.records) == written + 1

    serve(scenario)


def test_a_request_that_waits_for_its_shard_while_the_coordinator_drains_is_answered():
    async def scenario(broker):
        broker.settings = GroupSettings(initial_rebalance_delay_ms=3000)
        parked, found = broker.tell(join("g"), 3), broker.tell(fetch("g"), 8)
        broker.coordinator.drain()
        await trio.sleep(0.1)
        assert [answer.error_code for answer in parked] == [ErrorCode.NOT_COORDINATOR]
        assert found[0].groups[0].error_code == ErrorCode.NONE

    serve(scenario)


def test_members_that_fall_silent_are_dropped_and_the_empty_group_is_recorded():
    async def scenario(broker):
        await broker.ask(join(), 3)
        await trio.sleep(11)
        (described,) = (await broker.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert described.group_state == "Empty"
        assert len(broker.log_of("g").records) == 1

    serve(scenario)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_failed_append_is_an_error_and_the_next_request_reads_the_log_again(failure, told):
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        log.held = True
        answers = [broker.tell(commit("g", offset), 8) for offset in (2, 3)]
        assert answers == [[], []]
        log.fail(KafkaError(failure, "no"))
        assert [error_of(answer) for (answer,) in answers] == [told, told]
        log.held = False
        assert await broker.offset("g") == 1
        assert log.reads == 2

    serve(scenario)


def test_a_shard_is_read_again_only_when_nothing_of_its_last_life_is_under_way():
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        log.held = True
        first, second = broker.tell(commit("g", 2), 8), broker.tell(commit("g", 3), 8)
        (_, first_done), late = log.waiting
        log.waiting = [late]
        first_done(None, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no"))
        assert [error_of(answer) for answer in first + second] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        seen = broker.tell(fetch("g"), 8)
        await trio.sleep(1)
        assert (log.reads, seen) == (1, [])
        await log.flush()
        await trio.sleep(1)
        # The late append reached the log: unknown was not failed.
        assert seen[0].groups[0].topics[0].partitions[0].committed_offset == 3

    serve(scenario)


def test_a_log_that_cannot_be_read_refuses_and_is_tried_again():
    async def scenario(broker):
        broker.logs.refused = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")
        assert (await broker.ask(join(), 9)).error_code == ErrorCode.NOT_COORDINATOR
        broker.logs.refused = None
        broker.log_of("g").unreadable = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "damaged")
        assert (await broker.ask(join(), 9)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.log_of("g").unreadable = None
        assert (await broker.ask(join(), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    serve(scenario)


def test_a_damaged_record_makes_the_shard_unavailable_instead_of_forgetting_it():
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        offset, key, value = log.records[0]
        log.records[0] = (offset, key, value[:-1])
        await broker.start()
        assert await broker.offset("g") == ErrorCode.COORDINATOR_NOT_AVAILABLE

    serve(scenario)


def test_only_so_many_requests_wait_for_a_shard(monkeypatch):
    monkeypatch.setattr(hosted_shard, "WAITING_MAX", 2)

    async def scenario(broker):
        answers = [broker.tell(commit("g", offset), 8) for offset in range(3)]
        assert error_of(answers[2][0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(1)
        assert await broker.offset("g") == 1

    serve(scenario)


def test_questions_about_several_groups_are_put_together_from_their_shards():
    async def scenario(broker):
        names = [f"g{index}" for index in range(10)]
        for index, name in enumerate(names):
            await broker.ask(commit(name, index), 8)
        await broker.start()
        listed = await broker.ask(ListGroupsRequest(), 4)
        assert sorted(group.group_id for group in listed.groups) == names
        described = await broker.ask(DescribeGroupsRequest(groups=[*names, "nobody"]), 5)
        assert [group.group_id for group in described.groups] == [*names, "nobody"]
        assert [group.group_state for group in described.groups] == ["Empty"] * 10 + ["Dead"]
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        wanted = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names]
        fetched = await broker.ask(OffsetFetchRequest(groups=wanted), 8)
        assert [group.topics[0].partitions[0].committed_offset for group in fetched.groups] == list(range(10))
        deleted = await broker.ask(DeleteGroupsRequest(groups_names=["g3", "nobody"]), 2)
        assert [result.error_code for result in deleted.results] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert len((await broker.ask(ListGroupsRequest(), 4)).groups) == 9
        assert (await broker.ask(DescribeGroupsRequest(groups=[]), 5)).groups == []

    serve(scenario)


def test_a_group_that_is_named_again_is_answered_once_and_a_long_list_leaves_others_their_turn():
    async def scenario(broker):
        names = [f"g{index}" for index in range(3 * PARTS_PER_TURN)]
        for name in names:
            await broker.ask(DescribeGroupsRequest(groups=[name]), 5)  # all shards are loaded
        answers = broker.tell(DescribeGroupsRequest(groups=names * 100), 5)
        turns = 0
        while not answers:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert turns >= 3
        assert [group.group_id for group in answers[0].groups] == names

    serve(scenario)


def test_a_deletion_of_many_offsets_takes_several_batches_and_is_answered_after_the_last(monkeypatch):
    async def scenario(broker):
        for partition in range(5):
            await broker.ask(commit("g", partition, partition), 8)
        monkeypatch.setattr(hosted_shard, "APPEND_BATCH_BYTES", 1)
        log = broker.log_of("g")
        log.held = True
        answers = broker.tell(DeleteGroupsRequest(groups_names=["g", "g"]), 2)
        assert len(log.waiting) == 5
        for records, _ in log.waiting:
            assert len(records) == 1
        last = log.waiting.pop()
        await log.flush()
        assert answers == []
        log.waiting.append(last)
        await log.flush()
        assert [result.error_code for result in answers[0].results] == [ErrorCode.NONE]
        assert await broker.offset("g", 4) == -1

    serve(scenario)


def test_offsets_of_deleted_topics_go_also_where_no_shard_was_loaded_yet():
    async def scenario(broker):
        for name in ("g", "h"):
            await broker.ask(commit(name, 1), 8)
        await broker.start()
        await broker.coordinator.delete_topic_offsets(["t"])
        await broker.start()
        assert [await broker.offset("g"), await broker.offset("h")] == [-1, -1]
        broker.logs.refused = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")
        await broker.start()
        with pytest.raises(KafkaError) as refused:
            await broker.coordinator.delete_topic_offsets(["t"])
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    serve(scenario)


def test_the_log_stays_bounded_and_its_rest_says_it_all(monkeypatch):
    monkeypatch.setattr(hosted_shard, "SNAPSHOT_BYTES_MIN", 2_000)
    monkeypatch.setattr(hosted_shard, "SNAPSHOT_BATCH_BYTES", 100)

    async def scenario(broker):
        # One group is written all the time, its neighbour was once.
        busy = neighbour("g")
        for partition in range(5):
            await broker.ask(commit("g", partition, partition), 8)
        log, longest = broker.log_of("g"), 0
        for offset in range(300):
            await broker.ask(commit(busy, offset), 8)
            longest = max(longest, len(log.records))
        assert log.start > 0
        assert longest < 100
        await broker.start()
        assert [await broker.offset("g", partition) for partition in range(5)] == [0, 1, 2, 3, 4]
        assert await broker.offset(busy) == 299

    serve(scenario)
