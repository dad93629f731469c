"""The listeners of a broker for Kafka clients, as gnomon's settings and Kafka's give them.

1. A listener has an address to listen on, and an advertised one: a client that is connected to the listener gets the
   addresses that the brokers of the cluster advertise for its name.
2. `broker.kafka_host`, `broker.kafka_port` and `broker.advertised_host` describe one listener, named PLAINTEXT. Kafka's
   `listeners` replaces them, `advertised.listeners` replaces `broker.advertised_host`: both at once are refused.
3. The listener's name gives its protocol (`listener.security.protocol.map`). Only PLAINTEXT is built: another protocol
   is refused, as a port that clients take for an encrypted one would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gnomon.runtime.settings.endpoint import PLAINTEXT, Endpoint, advertising, listening
from gnomon.runtime.settings.settings import BrokerSettings

PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols."""
LISTENERS: Final = "listeners"
ADVERTISED: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
PROTOCOL_MAP_DEFAULT: Final = ",".join(f"{name}:{name}" for name in PROTOCOLS)
REPLACED: Final[Mapping[str, tuple[str, ...]]] = {
    f"kafka.{LISTENERS}": ("broker.kafka_host", "broker.kafka_port", "broker.advertised_host"),
    f"kafka.{ADVERTISED}": ("broker.advertised_host",),
}
"""By Kafka's name, the settings that it replaces (invariant 2)."""


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """One address of a broker for Kafka clients."""

    name: str = PLAINTEXT
    host: str = "127.0.0.1"
    port: int = 0
    """0 picks a free one."""
    advertised_host: str = ""
    """The host in answers to clients of this listener; empty means `host`."""
    advertised_port: int = 0
    """The port in answers to clients of this listener; 0 means the port that the broker listens on."""

    def bound(self, host: str, port: int) -> KafkaListener:
        """The listener once it listens on this address, with all parts of the advertised one."""
        return KafkaListener(self.name, host, port, self.advertised_host or self.host, self.advertised_port or port)

    @property
    def address(self) -> str:
        """Name and address, in the form of `listeners`."""
        return str(Endpoint(self.name, self.host, self.port))

    @property
    def advertised(self) -> str:
        """Name and advertised address, in the form of `advertised.listeners`."""
        return str(Endpoint(self.name, self.advertised_host, self.advertised_port))


def protocols(text: str) -> dict[str, str]:
    """The protocol of each listener name in `listener.security.protocol.map`.

    Raises:
        ValueError: the text has another form, or names a protocol that Kafka does not have.
    """
    found: dict[str, str] = {}
    for item in text.split(","):
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or not colon:
            raise ValueError(f"{item.strip()!r} is no NAME:PROTOCOL, such as INSIDE:PLAINTEXT")
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol {protocol} of {name} is none of {', '.join(PROTOCOLS)}")
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = protocol
    return found


def kafka_listeners(broker: BrokerSettings, kafka: Mapping[str, str]) -> tuple[KafkaListener, ...]:
    """The listeners of a broker for Kafka clients, at least one.

    Args:
        kafka: Kafka's settings that were given, by Kafka's names.

    Raises:
        ValueError: the settings contradict each other, or ask for a protocol that is not built.
    """
    if LISTENERS in kafka:
        listens, advertised_host = listening(kafka[LISTENERS]), ""
    else:
        listens = [Endpoint(PLAINTEXT, broker.kafka_host, broker.kafka_port)]
        advertised_host = broker.advertised_host
    named = {one.name: one for one in advertising(kafka[ADVERTISED])} if ADVERTISED in kafka else {}
    unknown = [name for name in named if name not in {one.name for one in listens}]
    if unknown:
        have = ", ".join(one.name for one in listens)
        raise ValueError(f"{ADVERTISED} names {', '.join(unknown)}, which {LISTENERS} does not: it has {have}")
    _check_protocols(listens, protocols(kafka.get(PROTOCOL_MAP, PROTOCOL_MAP_DEFAULT)))
    return tuple(
        KafkaListener(*one, named[one.name].host, named[one.name].port)
        if one.name in named
        else KafkaListener(*one, advertised_host)
        for one in listens
    )


def _check_protocols(listens: list[Endpoint], by_name: Mapping[str, str]) -> None:
    """Invariant 3."""
    for one in listens:
        protocol = by_name.get(one.name)
        if protocol is None:
            raise ValueError(f"listener {one.name} has no protocol: add {one.name}:PLAINTEXT to {PROTOCOL_MAP}")
        if protocol != PLAINTEXT:
            raise ValueError(
                f"listener {one.name} asks for {protocol}: TLS and SASL are not built yet, map it to PLAINTEXT"
            )
