"""The brokers with which a promise is tested: their addresses and their topics."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

CREATE_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class House:
    """Addresses of running brokers, for Kafka clients and for native clients."""

    kafka: str
    native: str

    def topic(self, name: str, *, shadow: bool) -> tuple[str, str]:
        """Creates a topic, and a shadow of it on request; returns the names to write to and to read from."""
        self._create(name)
        if not shadow:
            return name, name
        self._create(f"{name}-shadow", **{"gnomon.shadow.source": name})
        return name, f"{name}-shadow"

    def _create(self, name: str, **configs: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka})
        for created in admin.create_topics([NewTopic(name, 1 if not configs else -1, config=configs)]).values():
            created.result(CREATE_SECONDS_MAX)
