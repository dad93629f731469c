"""Requests and answers with many elements (numbers: invariants of `request_handling`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from gnomon.broker.kafka.connections.request_handling import ELEMENT_BYTES, ELEMENTS_AT_ONCE
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.api import ELEMENTS_MAX
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import ApiVersionsRequest, MetadataRequest
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest
from gnomon.wire.kafka.messages.group_admin import DescribeGroupsRequest
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from gnomon.wire.kafka.messages.positions import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

THREAD_SECONDS = 1.0


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that a node has run in a thread."""
    names: list[str] = []
    blocking = SimulatedWorld.blocking

    def noting(world: SimulatedWorld, call: Callable[..., Any], *args: object) -> Any:
        names.append(getattr(call, "__name__", ""))
        return blocking(world, call, *args)

    monkeypatch.setattr(SimulatedWorld, "blocking", noting)
    return names


def keys(count: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(count)])


def test_a_long_request_and_its_answer_are_decoded_and_encoded_in_a_thread(in_threads: list[str]) -> None:
    """1."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        in_threads.clear()
        response = await client.ask(keys(ELEMENTS_AT_ONCE), 4)
        assert len(response.coordinators) == ELEMENTS_AT_ONCE
        assert in_threads == []
        response = await client.ask(keys(ELEMENTS_AT_ONCE + 1), 4)
        assert [item.key for item in response.coordinators] == keys(ELEMENTS_AT_ONCE + 1).coordinator_keys
        assert {item.error_code for item in response.coordinators} == {ErrorCode.NONE}
        assert in_threads == ["_decoded", "_judge", "encode"]

    simulate_broker(scenario)


def test_a_short_request_for_everything_is_answered_in_a_thread_if_the_answer_is_long(in_threads: list[str]) -> None:
    """1."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for name in ("t", "u"):
            await client.create_topic(name, partitions=600)
        in_threads.clear()
        response = await client.ask(MetadataRequest(topics=None), 12)
        assert sum(len(topic.partitions) for topic in response.topics) == 1200
        assert in_threads == ["encode"]

    simulate_broker(scenario)


def test_a_request_with_more_elements_than_its_api_allows_ends_its_connection() -> None:
    """2."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        client.connection.send(keys(ELEMENTS_MAX + 1), 4)
        await broker.simulation.sleep(1)
        event, fields = broker.events[-1]
        assert event == "connection_refused"
        assert f"more than {ELEMENTS_MAX} elements" in str(fields["reason"])
        assert (await (await broker.connect()).ask(ApiVersionsRequest(), 0)).error_code == 0

    simulate_broker(scenario)


def test_the_elements_of_a_request_count_until_it_is_answered() -> None:
    """3."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        seen = []
        charge = type(next(iter(broker.server._connections))).charge

        def noting(connection: Any, exchange: Any, count: int) -> None:
            charge(connection, exchange, count)
            seen.append((count, broker.server.request_bytes))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(next(iter(broker.server._connections))), "charge", noting)
            await client.ask(keys(1000), 4)
        assert seen[-1][0] == 1000 * ELEMENT_BYTES
        assert seen[-1][1] >= 1000 * ELEMENT_BYTES
        assert broker.server.request_bytes == 0

    simulate_broker(scenario)


def test_the_next_request_of_a_connection_is_handled_after_a_long_one() -> None:
    """4."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(5_000)]
        long = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        client.connection.send(long, 5)
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0

    simulate_broker(scenario)


@pytest.fixture
def slow_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in a thread takes THREAD_SECONDS."""
    blocking = SimulatedWorld.blocking

    async def slow(world: SimulatedWorld, call: Callable[..., Any], *args: object) -> Any:
        await trio.sleep(THREAD_SECONDS)
        return await blocking(world, call, *args)

    monkeypatch.setattr(SimulatedWorld, "blocking", slow)


@pytest.mark.usefixtures("slow_threads")
def test_others_are_served_while_a_long_request_is_handled_and_a_second_long_one_waits() -> None:
    """1."""

    async def scenario(broker: EmbeddedBroker) -> None:
        first, second, other = [await broker.connect() for _ in range(3)]
        await first.ask(keys(1), 4)
        began = trio.current_time()
        sent = [client.connection.send(keys(5_000), 4) for client in (first, second)]
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0
        assert trio.current_time() - began < THREAD_SECONDS
        await first.connection.wait(sent[0])
        assert 3 * THREAD_SECONDS <= trio.current_time() - began < 4 * THREAD_SECONDS
        await second.connection.wait(sent[1])
        assert trio.current_time() - began >= 6 * THREAD_SECONDS

    simulate_broker(scenario)


@pytest.mark.usefixtures("slow_threads")
@pytest.mark.parametrize("after_seconds", [0.1, 1.5, 2.5])
def test_a_long_request_whose_client_is_gone_holds_up_no_later_one(after_seconds: float) -> None:
    """1."""

    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.ask(keys(1), 4)
        for _ in range(3):
            gone = await broker.connect()
            gone.connection.send(keys(5_000), 4)
            await broker.simulation.sleep(after_seconds)
            gone.connection.close()
        with trio.fail_after(100):
            assert len((await client.ask(keys(5_000), 4)).coordinators) == 5_000

    simulate_broker(scenario)


def test_a_group_that_is_named_often_is_answered_once() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.ask(keys(1), 4)
        described = await client.ask(DescribeGroupsRequest(groups=["g"] * 500 + ["h"]), 5)
        assert [group.group_id for group in described.groups] == ["g", "h"]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 500)
        assert [group.group_id for group in (await client.ask(asked, 8)).groups] == ["g"]

    simulate_broker(scenario)


@pytest.mark.parametrize("step", ["_decoded", "encode"])
def test_a_request_without_memory_ends_its_connection_alone(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocking = SimulatedWorld.blocking

    async def poor(world: SimulatedWorld, call: Callable[..., Any], *args: object) -> Any:
        if call.__name__ == step:
            raise MemoryError
        return await blocking(world, call, *args)

    async def scenario(broker: EmbeddedBroker) -> None:
        client, other = await broker.connect(), await broker.connect()
        await client.ask(keys(1), 4)
        monkeypatch.setattr(SimulatedWorld, "blocking", poor)
        client.connection.send(keys(5_000), 4)
        await broker.simulation.sleep(1)
        event, fields = broker.events[-1]
        assert event == "connection_refused"
        assert "out of memory" in str(fields["reason"])
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0

    simulate_broker(scenario)
