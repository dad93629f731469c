"""Bugs that cost clients nothing but time: nothing is lost or wrong, and every storm ends."""

from __future__ import annotations

from typing import Any

import pytest
from broker_scenario import CLUSTER_SCENARIO, SCENARIO

from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.partition.turns import Turns
from gnomon.metadata.presence import Presence
from gnomon.runtime.rpc.client import RpcClient

from planted.planted_bug import ScenarioBugs

LATENCY_BUGS = ScenarioBugs(CLUSTER_SCENARIO)
planted = LATENCY_BUGS.planted


@planted("readers that wait are not woken", breaks="broker.partition.turns 1", scenario=SCENARIO, quick=True)
def not_woken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "advanced", lambda turns, partition: None)


@planted("a long poll ends a tenth of a second late", breaks="broker.kafka.poll, deadline", scenario=SCENARIO)
def late_polls(patch: pytest.MonkeyPatch) -> None:
    before = Exchange.__init__

    def late(exchange: Any, connection: Any, header: Any, size: int, started: float) -> None:
        before(exchange, connection, header, size, started + 0.1)

    patch.setattr(Exchange, "__init__", late)


@planted("the pauses between attempts to connect never shrink", breaks="runtime.rpc.client, welcomed")
def pauses_stay(patch: pytest.MonkeyPatch) -> None:
    def welcomed(client: Any, cluster: object) -> None:
        if client.cluster is None and isinstance(cluster, str):
            client.cluster = cluster

    patch.setattr(RpcClient, "welcomed", welcomed)


@planted("leases live twice as long as they are said to", breaks="metadata.presence, ttl_seconds")
def long_leases(patch: pytest.MonkeyPatch) -> None:
    before = Presence.__init__

    def twice(presence: Any, metadata: Any, clock: Any, key: str, value: bytes, ttl_seconds: float, **how: Any) -> None:
        before(presence, metadata, clock, key, value, 2 * ttl_seconds, **how)

    patch.setattr(Presence, "__init__", twice)
