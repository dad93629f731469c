"""Runs scenarios with a table beside the admin API of one simulated broker."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `raw_requests`: test folders are no packages

from deciding import Refusing

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

Scenario = Callable[[Any], Awaitable[None]]


@pytest.fixture
def beside_table(admin_of: Callable[..., Any]) -> Callable[..., None]:
    """Runs a scenario with the table `settings` in memory, and the topic `orders`, which is no table."""

    def run(scenario: Scenario, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        async def with_table(broker: EmbeddedBroker) -> None:
            deciding = broker.authorizer = Refusing()
            await broker.restart()
            kafka = await broker.connect()
            given = {"gnomon.view": "kv", "gnomon.view.engine": "memory", **(configs or {})}
            await kafka.create_topic("settings", partitions, configs=given)
            await kafka.create_topic("orders", 2)
            await scenario(admin_of(broker.serving, broker, deciding))

        simulate_broker(with_table)

    return run
