"""One shard of groups on its log: loads and failed appends as clients see them, and a bounded log."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from coordinator_on_logs import commit, error_of, fetch, join, neighbour, serve

from gnomon.broker.coordination import hosted_machine
from gnomon.broker.coordination.state_log import LogUnavailable, NotLogLeader
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest


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


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NotLogLeader, ErrorCode.NOT_COORDINATOR),
        (LogUnavailable, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_failed_append_is_an_error_and_the_next_request_reads_the_log_again(failure, told):
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        log.held = True
        answers = [broker.tell(commit("g", offset), 8) for offset in (2, 3)]
        assert answers == [[], []]
        log.fail(failure("no"))
        assert [error_of(answer) for (answer,) in answers] == [told, told]
        log.held = False
        assert await broker.offset("g") == 1
        assert log.reads == 2

    serve(scenario)


def test_a_shard_is_loaded_again_only_after_all_appends_of_its_last_life_ended():
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        log.held = True
        first, second = broker.tell(commit("g", 2), 8), broker.tell(commit("g", 3), 8)
        (_, first_done), late = log.waiting
        log.waiting = [late]
        first_done(None, LogUnavailable("no"))
        assert [error_of(answer) for answer in first + second] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        seen = broker.tell(fetch("g"), 8)
        await trio.sleep(1)
        assert (log.reads, seen) == (1, [])
        await log.flush()
        await trio.sleep(1)
        # The late append reached the log: its outcome was unknown, not a failure.
        assert seen[0].groups[0].topics[0].partitions[0].committed_offset == 3

    serve(scenario)


async def joined_alone(broker):
    """The id of the one member of a stable group."""
    answer = await broker.ask(join(), 3)
    await broker.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=answer.member_id), 3)
    return answer.member_id


def test_a_member_that_left_before_a_failed_append_is_not_awaited_after_the_reload():
    async def scenario(broker):
        gone = await joined_alone(broker)
        log = broker.log_of("g")
        log.held = True
        broker.tell(LeaveGroupRequest(group_id="g", member_id=gone), 2)
        log.fail(LogUnavailable("that it is empty is not in the log"))
        log.held = False
        start = trio.current_time()
        assert (await broker.ask(join(), 3)).error_code == ErrorCode.NONE
        assert log.reads == 2
        assert trio.current_time() - start < 1

    serve(scenario)


def test_a_member_present_at_a_failed_append_has_its_whole_session_timeout_after_the_reload():
    async def scenario(broker):
        stays = await joined_alone(broker)
        await trio.sleep(9)
        log = broker.log_of("g")
        log.held = True
        broker.tell(commit(neighbour("g"), 1), 8)
        log.fail(LogUnavailable("no"))
        log.held = False
        await broker.offset("g")
        await trio.sleep(9)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=stays)
        assert (await broker.ask(beat, 3)).error_code == ErrorCode.NONE

    serve(scenario)


def test_a_shard_is_loaded_again_after_it_notices_the_claim_of_its_log_by_another_broker():
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        log.certain = log.ours = False
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.certain = log.ours = True
        assert await broker.offset("g") == 1
        assert log.reads == 2

    serve(scenario)


def test_a_shard_whose_log_cannot_be_read_refuses_requests_and_tries_again():
    async def scenario(broker):
        broker.logs.refused = NotLogLeader("led elsewhere")
        assert (await broker.ask(join(), 9)).error_code == ErrorCode.NOT_COORDINATOR
        broker.logs.refused = None
        broker.log_of("g").unreadable = LogUnavailable("damaged")
        assert (await broker.ask(join(), 9)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.log_of("g").unreadable = None
        assert (await broker.ask(join(), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    serve(scenario)


def test_a_damaged_record_makes_the_shard_unavailable_instead_of_forgetting_it():
    async def scenario(broker):
        await broker.ask(commit("g", 1), 8)
        log = broker.log_of("g")
        offset, stored = log.records[0]
        log.records[0] = (offset, stored._replace(value=stored.value[:-1]))
        await broker.start()
        assert error_of(await broker.ask(commit("g", 2), 8)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    serve(scenario)


def test_the_number_of_requests_that_wait_for_a_shard_is_bounded(monkeypatch):
    monkeypatch.setattr(hosted_machine, "WAITING_MAX", 2)

    async def scenario(broker):
        answers = [broker.tell(commit("g", offset), 8) for offset in range(3)]
        assert error_of(answers[2][0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(1)
        assert await broker.offset("g") == 1

    serve(scenario)


def test_a_deletion_of_many_offsets_takes_several_batches_and_is_answered_after_the_last(monkeypatch):
    async def scenario(broker):
        for partition in range(5):
            await broker.ask(commit("g", partition, partition), 8)
        monkeypatch.setattr(hosted_machine, "APPEND_BATCH_BYTES", 1)
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


def test_the_log_stays_bounded_and_still_contains_the_whole_state(monkeypatch):
    monkeypatch.setattr(hosted_machine, "SNAPSHOT_BYTES_MIN", 2_000)
    monkeypatch.setattr(hosted_machine, "SNAPSHOT_BATCH_BYTES", 100)

    async def scenario(broker):
        # One group is written all the time, its neighbour only once.
        busy = neighbour("g")
        for partition in range(5):
            await broker.ask(commit("g", partition, partition), 8)
        log, longest = broker.log_of("g"), 0
        for offset in range(300):
            await broker.ask(commit(busy, offset), 8)
            await trio.sleep(PAUSE_SECONDS)
            longest = max(longest, len(log.records))
        assert log.start > 0
        assert longest < 100
        await broker.start()
        assert [await broker.offset("g", partition) for partition in range(5)] == [0, 1, 2, 3, 4]
        assert await broker.offset(busy) == 299

    serve(scenario)
