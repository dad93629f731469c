"""The machines of one broker: which requests they serve, and loading machines without a request."""

from __future__ import annotations

import trio
from counter import Added, Announce, Counters
from counters_on_logs import serve

from gnomon.broker.coordination.state_log import LogUnavailable
from gnomon.broker.coordination.state_machine import Append, Decision, Refusal, StoredRecord

STORED = [(0, StoredRecord(b"added/c", b"5", -1, -1, False))]


def test_a_broker_serves_only_partitions_that_it_leads_while_its_lease_lives():
    async def scenario(broker):
        assert await broker.total() == 0
        for broker.leads, broker.lease_lives in ((False, True), (True, False)):
            assert broker.add(1) == broker.read() == [(0, Refusal.NOT_LEADER)]

    serve(scenario)


def test_a_machine_is_loaded_by_the_first_request():
    async def scenario(broker):
        broker.log.records = list(STORED)
        await broker.start()
        await trio.sleep(60)
        assert broker.log.reads == 0
        assert await broker.total() == 5

    serve(scenario)


def test_a_tenant_may_have_its_machines_loaded_without_a_request():
    async def scenario(broker):
        broker.log.records = list(STORED)
        await broker.start()
        await trio.sleep(0.1)
        assert broker.announced == [Announce("c", 5)]
        assert broker.log.reads == 1

    serve(scenario, loads_unasked=True)


def test_machines_are_loaded_without_a_request_when_this_broker_becomes_their_leader():
    async def scenario(broker):
        broker.log.records = list(STORED)
        broker.leads = False
        await broker.start()
        await trio.sleep(60)
        assert broker.log.reads == 0
        broker.leads = True
        broker.machines.leaders_changed()
        await trio.sleep(0.1)
        assert broker.log.reads == 1

    serve(scenario, loads_unasked=True)


def test_loading_without_a_request_is_retried_until_another_broker_leads_the_partition():
    async def scenario(broker):
        broker.log.records = list(STORED)
        broker.log.unreadable = LogUnavailable("too few bookies")
        await broker.start()
        await trio.sleep(4.5)
        assert broker.log.reads == 5
        broker.leads = False
        broker.machines.leaders_changed()
        await trio.sleep(60)
        assert broker.log.reads == 5

    serve(scenario, loads_unasked=True)


async def give_up(broker):
    """Starts a broker, whose machine is loaded and then given up, because an append fails."""
    broker.log.records = list(STORED)
    await broker.start()
    await trio.sleep(0.1)
    broker.log.held = True
    broker.add(1)
    broker.log.fail(LogUnavailable("no"))
    broker.log.held = False


def test_a_machine_that_was_given_up_is_loaded_again_without_a_request():
    async def scenario(broker):
        await give_up(broker)
        await trio.sleep(0.9)
        assert broker.log.reads == 1
        await trio.sleep(0.2)
        assert broker.log.reads == 2

    serve(scenario, loads_unasked=True)


def test_a_request_does_not_wait_for_the_pause_after_a_failure():
    async def scenario(broker):
        await give_up(broker)
        assert await broker.total() == 5
        assert broker.log.reads == 2

    serve(scenario, loads_unasked=True)


def test_a_machine_that_appends_at_each_load_pauses_while_its_log_refuses_appends(monkeypatch):
    loads = []

    def loaded(machine, now, wall_ms):
        loads.append(now)
        assert len(loads) < 100, "it is loaded without a pause: virtual time stands still"
        return Decision(appends=[Append([Added("c", 1), Added("c", 2)])])

    monkeypatch.setattr(Counters, "loaded", loaded)

    async def scenario(broker):
        broker.log.records = list(STORED)
        broker.log.refusing = True
        await broker.start()
        await trio.sleep(10.5)
        assert len(loads) == 11
        broker.log.refusing = False
        await trio.sleep(1)
        assert await broker.total() == 5 + 3

    serve(scenario, loads_unasked=True)


def test_a_machine_whose_topic_was_deleted_is_not_loaded_again():
    async def scenario(broker):
        broker.log.records = list(STORED)
        broker.log.unreadable = LogUnavailable("the topic was deleted")
        await broker.start()
        await trio.sleep(10.5)
        assert broker.log.reads == 11
        broker.leads = False  # nobody leads a deleted topic
        broker.machines.leaders_changed()
        await trio.sleep(60)
        assert broker.log.reads == 11

    serve(scenario, loads_unasked=True)


def test_the_search_for_used_partitions_is_retried_after_a_failure(monkeypatch):
    async def scenario(broker):
        broker.log.records = list(STORED)
        used, broker.logs.used = broker.logs.used, _unavailable
        await broker.start()
        await trio.sleep(5)
        assert broker.log.reads == 0
        broker.logs.used = used
        await trio.sleep(2)
        assert broker.log.reads == 1

    serve(scenario, loads_unasked=True)


async def _unavailable():
    raise LogUnavailable("the metadata does not answer")
