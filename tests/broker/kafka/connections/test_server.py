"""The Kafka server of a broker: its connections when it ends, and when they are idle."""

from __future__ import annotations

import pytest
import trio

from gnomon.broker.configs.config_key import ConfigType
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest
from gnomon.wire.kafka.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)


def _join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def _stable(client: BrokerClient) -> str:
    """Makes a stable group of one member; returns its id."""
    joined: JoinGroupResponse = await client.ask(_join(), 3)
    shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")]
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=shares)
    synced: SyncGroupResponse = await client.ask(request, 3)
    assert synced.assignment == b"share"
    return joined.member_id


async def _ended(broker: EmbeddedBroker) -> float:
    """Asks the broker to end; returns the seconds until it has."""
    began, process = trio.current_time(), broker.machine.process
    assert process is not None
    broker.stop.set()
    await process.ended.wait()
    return trio.current_time() - began


def test_a_broker_that_ends_answers_members_that_wait_for_others_and_long_polls() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        first, second, reader = [await broker.connect() for _ in range(3)]
        await reader.create_topic("t")
        member_id = await _stable(first)
        waiting = second.connection.send(_join(), 3)
        poll = reader.connection.send(reader.fetch_request("t", 0, max_wait_ms=60_000), 11)
        await trio.sleep(1)
        assert waiting.message is None
        assert await _ended(broker) < 1
        assert isinstance(waiting.message, JoinGroupResponse)
        assert waiting.message.error_code == ErrorCode.NOT_COORDINATOR
        assert poll.message is not None
        # The interrupted rebalance left no record: after the restart the member is still known.
        await broker.start()
        again = await broker.connect()
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        answered: HeartbeatResponse = await again.ask(heartbeat, 3)
        assert answered.error_code == ErrorCode.NONE

    simulate_broker(scenario)


def test_a_broker_that_ends_answers_members_that_wait_for_their_leader() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        first, second = [await broker.connect() for _ in range(2)]
        leader_id = await _stable(first)
        answer = second.connection.send(_join(), 3)
        await trio.sleep(1)
        await first.ask(_join(leader_id), 3)
        joined = await second.connection.wait(answer)
        assert isinstance(joined, JoinGroupResponse)
        assert joined.error_code == ErrorCode.NONE
        request = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        waiting = second.connection.send(request, 3)
        await trio.sleep(1)
        assert waiting.message is None
        assert await _ended(broker) < 1
        assert isinstance(waiting.message, SyncGroupResponse)
        assert waiting.message.error_code == ErrorCode.NOT_COORDINATOR

    simulate_broker(scenario)


IDLE_MS = {"connections.max.idle.ms": "5000"}


def test_idle_connections_are_closed_and_others_are_not() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        silent, busy, reader = await broker.connect_raw(), await broker.connect(), await broker.connect()
        await reader.create_topic("t")
        opened = trio.current_time()
        poll = reader.connection.send(reader.fetch_request("t", 0, max_wait_ms=20_000), 11)
        for _ in range(4):
            await trio.sleep(4)
            await busy.ask(ApiVersionsRequest(), 0)
        assert silent.ended.is_set()
        assert broker.serving.metrics.connections == 2
        answer = await reader.connection.wait(poll)
        assert trio.current_time() - opened == pytest.approx(20, abs=0.1)
        assert answer.responses == [] or answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        await trio.sleep(4.5)
        assert not reader.connection.closed_by_peer
        await trio.sleep(1)
        assert reader.connection.closed_by_peer
        assert broker.serving.metrics.connections == 0
        assert [event for event, _ in broker.events].count("connection_idle") == 3
        assert "connection_refused" not in [event for event, _ in broker.events]

    simulate_broker(scenario, kafka=IDLE_MS)


def test_connections_may_be_idle_for_ever_if_the_setting_allows_it() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await trio.sleep(3000)
        await client.ask(ApiVersionsRequest(), 0)

    simulate_broker(scenario, kafka={"connections.max.idle.ms": "-1"})


def test_a_connection_has_one_timer_for_all_its_requests_and_none_after_it_closed() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        timers = broker.serving.broker.timers
        before = len(timers)
        client = await broker.connect()
        for _ in range(50):
            await client.ask(ApiVersionsRequest(), 0)
        assert len(timers) == before + 1
        client.connection.connection.close()
        await trio.sleep(1)
        assert broker.serving.metrics.connections == 0
        assert len(timers) == before

    simulate_broker(scenario)


def test_the_allowed_idle_time_is_described_and_cannot_be_altered_at_run_time() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        (shown,) = (await client.describe_configs(4, "1", list(IDLE_MS))).configs
        assert (shown.value, shown.read_only, shown.config_type) == ("5000", True, ConfigType.LONG)
        refused, _ = await client.alter_configs(4, "1", ("connections.max.idle.ms", 0, "1"))
        assert refused == ErrorCode.INVALID_REQUEST

    simulate_broker(scenario, kafka=IDLE_MS)
