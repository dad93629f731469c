"""Runs scenarios with a table on one simulated broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from native_calls import play

from gnomon.client.client import NativeClient
from gnomon.client.tables.table import Table
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import iterate_records

ENGINES = ("memory", "disk")


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


async def log_of(kafka: BrokerClient) -> list[list[tuple[bytes | None, bytes | None]]]:
    """Keys and values of the log's records, by batches."""
    data = memoryview((await kafka.fetch("settings", 0)).records or b"")
    found = []
    while data:
        size = parse_batch(data).size_bytes
        found.append([(record.key, record.value) for record in iterate_records(data[:size], 1 << 20)])
        data = data[size:]
    return found
