"""The settings of a group coordinator, by Kafka's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Bounds and delays of groups; the defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 2**31 - 1
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_bytes_max: int = 4_096

    @property
    def offsets_retention_ms(self) -> int:
        """Unused offsets are kept this long, in milliseconds."""
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def read(cls, lookup: Callable[[str], int]) -> GroupSettings:
        """Reads every setting through `lookup`, which gives the value of a Kafka broker setting by its name."""
        return cls(
            initial_rebalance_delay_ms=lookup("group.initial.rebalance.delay.ms"),
            session_timeout_ms_min=lookup("group.min.session.timeout.ms"),
            session_timeout_ms_max=lookup("group.max.session.timeout.ms"),
            members_max=lookup("group.max.size"),
            offsets_retention_minutes=lookup("offsets.retention.minutes"),
            offsets_retention_check_interval_ms=lookup("offsets.retention.check.interval.ms"),
            offset_metadata_bytes_max=lookup("offset.metadata.max.bytes"),
        )


class Configs(Protocol):
    """The settings of a broker, by Kafka's names."""

    revision: int
    """Grows with every change."""

    def number(self, name: str) -> int:
        """The value of a numeric setting."""


class CurrentGroupSettings:
    """Gives the settings of now; reads them again only after a change, because that takes 9 us."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._revision = configs.revision
        self._settings = GroupSettings.read(configs.number)

    def __call__(self) -> GroupSettings:
        if self._revision != self._configs.revision:
            self._revision = self._configs.revision
            self._settings = GroupSettings.read(self._configs.number)
        return self._settings
