"""Test support: a real broker in a child process, and a simulated world. Names are imported at their first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.testing.kafka_broker import BrokerNotStarted as BrokerNotStarted
    from gnomon.testing.kafka_broker import KafkaBroker as KafkaBroker

_MODULES = {
    "BrokerNotStarted": "kafka_broker",
    "KafkaBroker": "kafka_broker",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
