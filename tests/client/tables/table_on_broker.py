"""Runs scenarios with a table on one simulated broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from native_calls import play

from gnomon.client.client import NativeClient
from gnomon.client.tables.table import Table
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker

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
