"""One machine on its log, by the numbers of the module's invariants; counters are the tenant."""

from __future__ import annotations

import pytest
import trio
from counter import Add, Added, Announce, Counters
from counters_on_logs import serve

from gnomon.broker.coordination import hosted_machine
from gnomon.broker.coordination.state_log import LogUnavailable, NotLogLeader
from gnomon.broker.coordination.state_machine import Append, Decision, Refusal, StoredRecord

UNAVAILABLE, NOT_LEADER = (0, Refusal.UNAVAILABLE), (0, Refusal.NOT_LEADER)
DONE = (0, None)


def test_records_are_applied_and_answered_in_their_order_once_durable():
    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.held = True
        answers = [broker.add(number) for number in (1, 10)]
        await trio.sleep(60)
        assert answers == [[], []]
        assert await broker.total() == 0
        await broker.log.flush()
        assert answers == [[DONE], [DONE]]
        assert [stored.value for _, stored in broker.log.records] == [b"1", b"10"]
        await broker.start()
        assert await broker.total() == 11

    serve(scenario)


def test_a_machine_gets_back_the_records_that_it_appended(monkeypatch):
    replayed = []
    monkeypatch.setattr(Counters, "replay", lambda machine, record: replayed.append(record))
    monkeypatch.setattr(Counters, "decode", lambda machine, stored: None)

    async def scenario(broker):
        record = Added("c", 1)
        monkeypatch.setattr(Counters, "handle", lambda *event: Decision(appends=[Append([record, record])]))
        broker.add(1)
        await trio.sleep(0.1)
        assert [one is record for one in replayed] == [True, True]

    serve(scenario)


def test_a_stored_record_without_meaning_for_the_machine_is_passed_over(monkeypatch):
    decode = Counters.decode
    monkeypatch.setattr(Counters, "decode", lambda machine, stored: None if stored.control else decode(machine, stored))

    async def scenario(broker):
        broker.log.records = [
            (0, StoredRecord(b"added/c", b"1", 7, 3, False)),
            (1, StoredRecord(b"\0\0\0\1", b"", 7, 3, True)),
        ]
        broker.log.next = 2
        assert await broker.total() == 1

    serve(scenario)


@pytest.mark.parametrize(("failure", "refused"), [(NotLogLeader, NOT_LEADER), (LogUnavailable, UNAVAILABLE)])
def test_a_failed_append_refuses_every_request_that_waits_and_the_next_one_loads_the_machine_again(failure, refused):
    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.held = True
        answers = [broker.add(1), broker.add(10), broker.read(seen=0, seconds=60)]
        await trio.sleep(0.1)
        broker.log.fail(failure("no"))
        assert answers == [[refused]] * 3
        broker.log.held = False
        assert await broker.total() == 0
        assert broker.log.reads == 2

    serve(scenario)


def test_a_machine_is_loaded_again_only_after_every_append_of_its_last_life_was_reported():
    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.held = True
        answers = [broker.add(1), broker.add(10)]
        (_, first_done), late = broker.log.waiting
        broker.log.waiting = [late]
        first_done(None, LogUnavailable("no"))
        assert answers == [[UNAVAILABLE]] * 2
        seen = broker.read()
        await trio.sleep(1)
        assert (broker.log.reads, seen) == (1, [])
        await broker.log.flush()
        await trio.sleep(1)
        assert seen == [(10, None)]  # the late append reached the log: its outcome was unknown, not a failure

    serve(scenario)


def test_a_machine_whose_log_was_claimed_is_given_up_when_a_confirmation_finds_out():
    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.certain = broker.log.ours = False
        assert broker.read() == [NOT_LEADER]
        broker.log.records = [(0, StoredRecord(b"added/c", b"5", -1, -1, False))]
        broker.log.certain = broker.log.ours = True
        assert await broker.total() == 5

    serve(scenario)


def test_a_request_that_waited_for_the_loading_is_confirmed_too():
    async def scenario(broker):
        broker.log.silent = True
        answers = broker.read()
        await trio.sleep(1)
        assert (broker.log.reads, answers) == (1, [])
        broker.log.asked[0](False)
        assert answers == [NOT_LEADER]

    serve(scenario)


def test_a_log_that_cannot_be_read_refuses_and_is_read_for_the_next_request():
    async def scenario(broker):
        for error, refused in ((NotLogLeader("led elsewhere"), NOT_LEADER), (LogUnavailable("damaged"), UNAVAILABLE)):
            broker.logs.refused = error
            answers = broker.add(1)
            await trio.sleep(0.1)
            assert answers == [refused]
        broker.logs.refused = None
        broker.log.unreadable = LogUnavailable("damaged")
        answers = broker.add(1)
        await trio.sleep(0.1)
        assert answers == [UNAVAILABLE]
        broker.log.unreadable = None
        assert await broker.total() == 0

    serve(scenario)


def test_a_damaged_record_makes_the_machine_unavailable():
    async def scenario(broker):
        broker.log.records = [(0, StoredRecord(b"added/c", b"one", -1, -1, False))]
        answers = broker.read()
        await trio.sleep(0.1)
        assert answers == [UNAVAILABLE]

    serve(scenario)


def test_a_request_sent_in_answer_to_another_queues_after_the_requests_that_wait_for_the_loading():
    async def scenario(broker):
        order = []

        def first_answered(total, refusal):
            order.append("first")
            broker.machines.submit(0, Add("c", 3, lambda *answer: order.append("third")), order.append)

        broker.machines.submit(0, Add("c", 1, first_answered), order.append)
        broker.machines.submit(0, Add("c", 2, lambda *answer: order.append("second")), order.append)
        await trio.sleep(1)
        assert order == ["first", "second", "third"]
        assert [stored.value for _, stored in broker.log.records] == [b"1", b"2", b"3"]

    serve(scenario)


def test_the_number_of_requests_that_wait_for_the_loading_is_bounded(monkeypatch):
    monkeypatch.setattr(hosted_machine, "WAITING_MAX", 2)

    async def scenario(broker):
        answers = [broker.add(number) for number in (1, 10, 100)]
        assert answers == [[], [], [(0, Refusal.LOADING)]]
        await trio.sleep(1)
        assert await broker.total() == 11

    serve(scenario)


def test_an_effect_is_executed_after_its_record_is_durable_and_never_if_that_is_unknown():
    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.held = True
        broker.add(1)
        await trio.sleep(1)
        assert broker.announced == []
        await broker.log.flush()
        assert broker.announced == [Announce("c", 1)]
        broker.add(10)
        broker.log.fail(LogUnavailable("no"))
        broker.log.held = False
        assert await broker.total() == 1
        assert broker.announced == [Announce("c", 1), Announce("c", 1)]  # announced again after the load; the 10 is not

    serve(scenario)


def test_a_deadline_is_kept_and_an_earlier_one_moves_it_forward():
    async def scenario(broker):
        late = broker.read(seen=0, seconds=60)
        early = broker.read(seen=0, seconds=5)
        await trio.sleep(6)
        assert (late, early) == ([], [(0, None)])
        await trio.sleep(55)
        assert late == [(0, None)]

    serve(scenario)


def test_a_machine_that_drains_keeps_no_request_waiting_except_for_its_log():
    async def scenario(broker):
        parked = broker.read(seen=0, seconds=60)
        await trio.sleep(0.1)
        broker.log.held = True
        added = broker.add(1)
        broker.machines.drain()
        assert (parked, added) == ([NOT_LEADER], [])
        assert broker.read(seen=0, seconds=60) == [NOT_LEADER]
        await broker.log.flush()
        assert added == [DONE]

    serve(scenario)


def test_a_released_machine_refuses_all_waiting_requests_and_ignores_appends_in_flight():
    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.held = True
        parked, added = broker.read(seen=0, seconds=60), broker.add(1)
        broker.leads = False
        broker.machines.leaders_changed()
        assert (parked, added) == ([NOT_LEADER], [NOT_LEADER])
        assert broker.add(1) == [NOT_LEADER]
        await broker.log.flush()
        assert broker.announced == []

    serve(scenario)


def test_a_long_append_takes_several_batches_and_is_applied_after_the_last(monkeypatch):
    monkeypatch.setattr(hosted_machine, "APPEND_BATCH_BYTES", 1)
    records = [Added("c", number) for number in (1, 10, 100)]

    async def scenario(broker):
        assert await broker.total() == 0
        broker.log.held = True
        with monkeypatch.context() as patch:
            patch.setattr(Counters, "handle", lambda *event: Decision(appends=[Append(records)]))
            broker.add(1)
        assert [len(batch) for batch, _ in broker.log.waiting] == [1, 1, 1]
        last = broker.log.waiting.pop()
        await broker.log.flush()
        assert await broker.total() == 0
        broker.log.waiting.append(last)
        await broker.log.flush()
        assert await broker.total() == 111

    serve(scenario)


def test_the_log_stays_bounded_and_still_contains_the_whole_state(monkeypatch):
    monkeypatch.setattr(hosted_machine, "SNAPSHOT_BYTES_MIN", 500)
    monkeypatch.setattr(hosted_machine, "SNAPSHOT_BATCH_BYTES", 20)

    async def scenario(broker):
        for name in "abcde":
            broker.add(7, name)
        longest = 0
        for _ in range(300):
            broker.add(1, "busy")
            await trio.sleep(0.1)
            longest = max(longest, len(broker.log.records))
        assert broker.log.start > 0
        assert longest < 120
        await broker.start()
        assert [await broker.total(name) for name in "abcde"] == [7] * 5
        assert await broker.total("busy") == 300

    serve(scenario)


@pytest.mark.parametrize("kept", range(4))
def test_a_snapshot_contains_the_records_in_flight_and_any_part_of_it_changes_nothing(monkeypatch, kept):
    monkeypatch.setattr(hosted_machine, "SNAPSHOT_BYTES_MIN", 20)
    monkeypatch.setattr(hosted_machine, "SNAPSHOT_BATCH_BYTES", 1)

    async def scenario(broker):
        await trio.sleep(0.1)
        broker.log.held = True
        names = "abc"
        for name in names:
            broker.add(5, name)
        await trio.sleep(0.1)
        appends = [batch for batch in broker.log.waiting if batch[0][0][0].startswith(b"added/")]
        snapshot = [batch for batch in broker.log.waiting if batch not in appends]
        assert (len(appends), len(snapshot)) == (3, 3)
        broker.log.waiting = [*appends, *snapshot[:kept]]  # the broker dies before the rest
        await broker.log.flush()
        await broker.start()
        broker.log.held = False
        assert [await broker.total(name) for name in names] == [5] * 3

    serve(scenario)
