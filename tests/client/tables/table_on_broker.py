"""Runs scenarios with a table on one simulated broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import pytest
import trio
from native_calls import play

from gnomon.broker.tables import table_log
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.table_log import TableLog
from gnomon.client.client import NativeClient
from gnomon.client.tables.table import Table
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import iterate_records

ENGINES = ("memory", "disk")
FLUSHED_SECONDS = 6.0
"""After this time what was applied is in the store (`table.flush_seconds` is 5)."""


def with_table(
    scenario: Callable[[EmbeddedBroker, BrokerClient, Table], Awaitable[None]],
    partitions: int = 1,
    configs: Mapping[str, str] = MappingProxyType({}),
    engines: Sequence[str] = ENGINES,
) -> None:
    """Runs a scenario with an empty table `settings`, once for each engine."""
    for engine in engines:
        given = {"gnomon.view": "kv", "gnomon.view.engine": engine, **configs}

        async def run(
            broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient, given: Mapping[str, str] = given
        ) -> None:
            await kafka.create_topic("settings", partitions=partitions, configs=given)
            await scenario(broker, kafka, client.table("settings"))

        play(run)


def read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a table that is loaded read its log batch by batch, 0.01 s each."""
    read = TableLog.batches

    async def batches(log: TableLog, bounds: LogBounds, offset: Offset) -> list[bytes]:
        await trio.sleep(0.01)
        return await read(log, bounds, offset)

    monkeypatch.setattr(TableLog, "batches", batches)
    monkeypatch.setattr(table_log, "READ_BYTES", 1)


def table_of(broker: EmbeddedBroker) -> HostedTable:
    """The table `settings` at its broker."""
    view = broker.serving.broker.partitions.use(broker.serving.broker.topics.find("settings"), 0).view
    assert isinstance(view, HostedTable)
    return view


async def loading_beyond(broker: EmbeddedBroker, offset: int) -> HostedTable:
    """The table `settings`, once its loading has applied the log to an offset."""
    table = table_of(broker)
    while table.state.applied < offset:  # noqa: ASYNC110 - it sets no event
        await trio.sleep(0.001)
    assert not table.is_live
    return table


async def log_of(kafka: BrokerClient) -> list[list[tuple[bytes | None, bytes | None]]]:
    """Keys and values of the log's records, by batches."""
    data = memoryview((await kafka.fetch("settings", 0)).records or b"")
    found = []
    while data:
        size = parse_batch(data).size_bytes
        found.append([(record.key, record.value) for record in iterate_records(data[:size], 1 << 20)])
        data = data[size:]
    return found
