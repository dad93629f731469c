"""Where a promise is tried: the addresses of brokers that run, and their topics."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

CREATE_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class House:
    """Addresses of brokers that run: for Kafka clients and for native ones."""

    kafka: str
    native: str

    def topic(self, name: str, *, shadow: bool) -> tuple[str, str]:
        """Creates a topic, and a shadow of it where asked for; gives the names to write to and to read from."""
        self._create(name)
        if not shadow:
            return name, name
        self._create(f"{name}-shadow", **{"gnomon.shadow.source": name})
        return name, f"{name}-shadow"

    def _create(self, name: str, **configs: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka})
        for created in admin.create_topics([NewTopic(name, 1 if not configs else -1, config=configs)]).values():
            created.result(CREATE_SECONDS_MAX)
