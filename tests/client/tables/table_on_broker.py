"""Runs scenarios with a table on one simulated broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from native_calls import play

from gnomon.client.client import NativeClient
from gnomon.client.tables.table import Table
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker

CONFIGS = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}


def with_table(
    scenario: Callable[[EmbeddedBroker, BrokerClient, Table], Awaitable[None]],
    partitions: int = 1,
    configs: Mapping[str, str] = CONFIGS,
) -> None:
    """Runs a scenario with an empty table `settings`."""

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("settings", partitions=partitions, configs=configs)
        await scenario(broker, kafka, client.table("settings"))

    play(run)
