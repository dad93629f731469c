"""The checker inside partitions finds forgotten appends, and appends that are answered twice."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from gnomon.broker.partition.appends import Appends, Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX
from gnomon.runtime.world import DiskFull
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.storms.kafka.append_checker import REFUSED, append_checker
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicState
from gnomon.wire.kafka.records import Record, build_batch

LONG = build_batch([Record(offset_delta=0, value=bytes(AT_ONCE_BYTES_MAX))], base_timestamp=1000)
BATCH = build_batch([Record(offset_delta=0, value=b"x")], base_timestamp=1000)


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> None:
        raise DiskFull("no room left")

    monkeypatch.setattr(Chain, "open", full)


def refusals_seen() -> int:
    """Refuses a batch that waits for a partition whose opening fails; returns the count of refusals."""

    async def scenario(broker: EmbeddedBroker) -> int:
        with append_checker(broker.simulation):
            client = await broker.connect()
            await client.create_topic("t")
            assert (await client.produce("t", BATCH)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        return broker.simulation.coverage.counts[REFUSED]

    return simulate_broker(scenario)


@pytest.mark.usefixtures("unopened")
def test_an_append_that_waited_and_is_refused_is_answered_once() -> None:
    assert refusals_seen() == 1


@pytest.mark.usefixtures("unopened")
def test_an_append_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Appends, "refuse_waiting", lambda appends, outcome: appends._waiting.clear())
    with pytest.raises(
        SimulationFailed, match="1 appends to a partition are not answered, and the partition knows of 0"
    ):
        refusals_seen()


@pytest.mark.usefixtures("unopened")
def test_an_append_that_is_answered_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_waiting = Appends.refuse_waiting

    def twice(appends: Appends, outcome: Produced) -> None:
        waiting = appends._waiting.copy()
        refuse_waiting(appends, outcome)
        appends._waiting = waiting
        refuse_waiting(appends, outcome)

    monkeypatch.setattr(Appends, "refuse_waiting", twice)
    with pytest.raises(SimulationFailed, match="answered a second time"):
        refusals_seen()


def test_an_append_whose_batch_is_being_recompressed_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    work = BatchThread.work

    async def scenario(broker: EmbeddedBroker) -> None:
        begun, ended = trio.Event(), trio.Event()

        async def slowly(*given: Any) -> Any:
            begun.set()
            await ended.wait()
            return await work(*given)

        monkeypatch.setattr(BatchThread, "work", slowly)
        codes: list[int] = []

        async def produce() -> None:
            codes.append((await client.produce("t", LONG)).error_code)

        with append_checker(broker.simulation):
            client, other = await broker.connect(), await broker.connect()
            await client.create_topic("t", configs={"compression.type": "gzip"})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await begun.wait()
                await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
                ended.set()
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    simulate_broker(scenario)
