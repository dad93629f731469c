"""Test support: real brokers and clusters in child processes, and a simulated world. Names are imported at their first
use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.testing.kafka_broker import KafkaBroker as KafkaBroker
    from gnomon.testing.kafka_cluster import KafkaCluster as KafkaCluster
    from gnomon.testing.node_process import BrokerNotStarted as BrokerNotStarted
    from gnomon.testing.node_process import BrokerProcess as BrokerProcess
    from gnomon.testing.node_process import NodeProcess as NodeProcess

_MODULES = {
    "BrokerProcess": "node_process",
    "BrokerNotStarted": "node_process",
    "KafkaBroker": "kafka_broker",
    "KafkaCluster": "kafka_cluster",
    "NodeProcess": "node_process",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
