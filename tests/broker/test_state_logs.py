"""The partitions of a topic as logs of state machines, in a whole broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from gnomon.bookie.errors import LedgerFenced
from gnomon.broker import state_logs
from gnomon.broker.coordination.state_log import LogUnavailable, NotLogLeader
from gnomon.broker.coordination.state_machine import StoredRecord
from gnomon.broker.partition.partition import Partition
from gnomon.broker.state_logs import PartitionStateLog
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch


@asynccontextmanager
async def _log_of(broker: EmbeddedBroker) -> AsyncIterator[tuple[PartitionStateLog, Partition]]:
    """The log of the first partition of the topic of offsets, and that partition."""
    node = broker.serving.broker
    partition = node.partitions.use(await node.offsets_topic.made(), 0)
    async with trio.open_nursery() as nursery:
        yield PartitionStateLog(partition, node.timers._clock, node.timers, nursery, node.log), partition


class _Waiting:
    """Waits for one append."""

    def __init__(self) -> None:
        self._answered = trio.Event()
        self.error: LogUnavailable | None = None

    def done(self, base_offset: int | None, error: LogUnavailable | None) -> None:
        self.error = error
        self._answered.set()

    async def wait(self) -> LogUnavailable | None:
        await self._answered.wait()
        return self.error


def test_reading_a_long_log_yields_to_other_tasks() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with _log_of(broker) as (log, _), trio.open_nursery() as nursery:
            assert [stored async for stored in log.read_all()] == []
            written = _Waiting()
            log.append([(b"k%d" % index, b"v") for index in range(1000)], written.done)
            assert await written.wait() is None
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(others)
            keys = [stored.key async for stored in log.read_all()]
            nursery.cancel_scope.cancel()
        assert keys == [b"k%d" % index for index in range(1000)]
        assert turns >= 4

    simulate_broker(scenario)


def test_nothing_is_appended_to_a_log_that_was_not_read() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with _log_of(broker) as (log, _):
            refused, confirmed = _Waiting(), list[bool]()
            log.append([(b"key", b"value")], refused.done)
            log.confirm(confirmed.append)
            assert isinstance(await refused.wait(), NotLogLeader)
            assert confirmed == [False]
            assert [stored async for stored in log.read_all()] == []

    simulate_broker(scenario)


def test_reading_a_log_is_refused_once_another_broker_claims_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_logs, "READ_BYTES", 1)

    async def scenario(broker: EmbeddedBroker) -> None:
        async with _log_of(broker) as (log, partition):
            assert [stored async for stored in log.read_all()] == []
            first, second = _Waiting(), _Waiting()
            log.append([(b"first", b"v")], first.done)
            log.append([(b"second", b"v")], second.done)
            await second.wait()
            records = log.read_all()
            assert (await anext(records)).key == b"first"
            partition._claimed_since(partition.segments[-1], LedgerFenced("another broker has claimed it"))
            with pytest.raises(NotLogLeader):
                await anext(records)

    simulate_broker(scenario)


def test_a_log_that_can_be_read_and_not_written_is_not_opened() -> None:
    """A machine of such a log would be given up with its first append, and be loaded again with the next request."""

    async def scenario(broker: EmbeddedBroker) -> None:
        async with _log_of(broker) as (log, partition):
            assert [stored async for stored in log.read_all()] == []
            kept, lost = _Waiting(), _Waiting()
            log.append([(b"kept", b"v")], kept.done)
            assert await kept.wait() is None
            broker.machine.disk.conditions.full = True
            log.append([(b"lost", b"v")], lost.done)
            assert await lost.wait() is not None
            assert partition.log is not None, "the log is readable"
            with pytest.raises(LogUnavailable, match="could not be opened to write") as refused:
                await anext(log.read_all())
            assert not isinstance(refused.value, NotLogLeader)
            broker.machine.disk.conditions.full = False
            await broker.simulation.sleep(2)
            assert [stored.key async for stored in log.read_all()] == [b"kept"]

    simulate_broker(scenario)


def test_a_record_is_read_with_the_producer_epoch_and_control_flag_of_its_batch() -> None:
    """The test replaces the batches of the partition, because a broker accepts no transaction markers yet."""
    record = [Record(offset_delta=0, key=b"k", value=b"v")]
    producer: dict[str, int] = {"base_timestamp": 0, "producer_id": 7, "producer_epoch": 3}
    batches = [
        build_batch(record, base_timestamp=0),
        build_batch(record, base_offset=1, **producer),
        build_batch(record, base_offset=2, transactional=True, control=True, **producer),
    ]

    async def scenario(broker: EmbeddedBroker) -> None:
        async with _log_of(broker) as (log, partition):
            assert [stored async for stored in log.read_all()] == []
            written = _Waiting()
            log.append([(b"k", b"v")] * len(batches), written.done)
            assert await written.wait() is None
            partition.read = lambda *where: (batches, 0, ErrorCode.NONE)
            assert [stored async for stored in log.read_all()] == [
                StoredRecord(b"k", b"v", -1, -1, False),
                StoredRecord(b"k", b"v", 7, 3, False),
                StoredRecord(b"k", b"v", 7, 3, True),
            ]

    simulate_broker(scenario)
