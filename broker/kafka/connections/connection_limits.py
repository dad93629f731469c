"""Limits on the Kafka connections of a broker: in all (`max.connections`), and of each client address
(`max.connections.per.ip`, `max.connections.per.ip.overrides`).

1. A connection beyond a limit is refused with the name of the limit. It does not count itself.
2. A limit that is altered at run time holds for new connections; open ones stay.
"""

from __future__ import annotations

from typing import Protocol

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.config_key import address_limits


class Limited(Protocol):
    """A connection."""

    @property
    def address(self) -> str:
        """The host of the peer, without its port."""


class ConnectionLimits:
    """The open connections of one broker, by address."""

    def __init__(self, configs: BrokerConfigs, connections_max: int) -> None:
        """`connections_max` is `broker.connections_max`, which bounds the memory for connections."""
        self._configs = configs
        self._connections_max = connections_max
        self._counts: dict[str, int] = {}
        self._counted: set[Limited] = set()

    def take(self, connection: Limited) -> str | None:
        """Counts a new connection; returns the reason to refuse it, and then does not count it."""
        address, total = connection.address, len(self._counted)
        if total >= self._connections_max:
            return f"{total} clients are connected already: see broker.connections_max"
        if total >= self._configs.number("max.connections"):
            return f"{total} clients are connected already: see max.connections"
        count = self._counts.get(address, 0)
        if count >= self._limit_of(address):
            return f"{count} clients are connected from {address} already: see max.connections.per.ip"
        self._counts[address] = count + 1
        self._counted.add(connection)
        return None

    def give_back(self, connection: Limited) -> None:
        """A connection is gone."""
        if connection in self._counted:
            self._counted.remove(connection)
            left = self._counts[connection.address] - 1
            if left:
                self._counts[connection.address] = left
            else:
                del self._counts[connection.address]

    def _limit_of(self, address: str) -> int:
        overrides = self._configs.text("max.connections.per.ip.overrides") or ""
        return address_limits(overrides).get(address, self._configs.number("max.connections.per.ip"))
