"""The REST API of tables on one broker: keys, conditions, scans, transactions, and the list."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

SETTINGS = "/kv/v1/settings"


def on_a_table(admin_of: Callable[..., Any], scenario: Callable[[Any], Awaitable[None]], partitions: int = 1) -> None:
    """Runs a scenario beside a broker with the table `settings` and the topic `orders`, which is none."""

    async def run(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("settings", partitions, configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        await kafka.create_topic("orders", 2)
        await scenario(admin_of(broker.serving, broker))

    simulate_broker(run)


def test_x(admin_of: Callable[..., Any]) -> None:
    async def scenario(admin: Any) -> None:
        r = await admin.ask("PUT", f"{SETTINGS}/colour", content=b"green")
        print(r.status_code, r.headers, r.text)
        r = await admin.ask("GET", f"{SETTINGS}/colour")
        print(r.status_code, r.headers, r.text)
        r = await admin.ask("PUT", f"{SETTINGS}/colour", content=b"green", headers={"If-None-Match": "*"})
        print(r.status_code, r.headers, r.text)
        r = await admin.ask("GET", SETTINGS)
        print(r.status_code, r.headers, r.text)
        r = await admin.ask("GET", "/kv/v1")
        print(r.status_code, r.headers, r.text)
        r = await admin.ask("GET", "/kv/v1/orders")
        print(r.status_code, r.headers, r.text)
    on_a_table(admin_of, scenario)
