"""The resource limits of one broker."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.runtime.settings.settings import BrokerSettings


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Resource limits of one broker, and whether it acknowledges with fewer copies than a topic asks for."""

    request_queue_bytes_max: int
    connection_request_bytes_max: int
    connections_max: int
    entry_cache_bytes_max: int
    acknowledge_with_fewer_copies: bool

    @classmethod
    def of(cls, settings: BrokerSettings) -> BrokerLimits:
        """The limits that the settings of a broker give."""
        return cls(
            settings.request_queue_bytes_max,
            settings.connection_request_bytes_max,
            settings.connections_max,
            settings.entry_cache_bytes_max,
            settings.acknowledge_with_fewer_copies,
        )
