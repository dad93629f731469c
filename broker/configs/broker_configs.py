"""The broker's settings with Kafka's names: the table of keys, and their current values.

1. A value comes from the first of four sources that has one: the values set for this broker, the values set for all
   brokers (both are stored in the metadata and can be altered at run time), the settings file or the environment, the
   default.
2. A topic's key that falls back to a broker's key in Kafka does so here (`topic_synonyms`): the value set on the topic
   comes first, then the four sources above. Every other topic key falls back to its own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gnomon.broker.configs.config_key import (
    ConfigKey,
    ConfigSource,
    ConfigType,
    InvalidConfig,
    address_limits,
    any_value,
    at_least,
    only,
    readable,
)
from gnomon.broker.configs.topic_configs import LONG_MAX, MIN_COPIES, TOPIC_CONFIGS
from gnomon.broker.configs.unused_configs import UNUSED_CONFIGS
from gnomon.runtime.settings.endpoint import advertising, listening
from gnomon.runtime.settings.listeners import (
    ADVERTISED,
    LISTENERS,
    PROTOCOL_MAP,
    PROTOCOL_MAP_DEFAULT,
    protocols,
)

_HOUR_MS = 3_600_000
FACTOR = "default.replication.factor"
NATIVE_ADVERTISED = "gnomon.native.advertised"
INT_MAX = str((1 << 31) - 1)


def _static(name: str, kind: ConfigType, default: str | None, text: str, low: int | None = None) -> ConfigKey:
    judge = at_least(low) if low is not None else any_value
    return ConfigKey(name, kind, default, text, judge, alterable=False)


def _alterable(name: str, topic_name: str, text: str) -> ConfigKey:
    """A broker key that a topic key falls back to: same type, default and rules."""
    topic_key = TOPIC_CONFIGS[topic_name]
    return ConfigKey(name, topic_key.type, topic_key.default, text, topic_key.judge)


def _throttle(name: str, text: str) -> ConfigKey:
    """A rate that `kafka-reassign-partitions.sh` removes after every reassignment, whether it was set or not."""
    unlimited = str(LONG_MAX)
    return ConfigKey(name, ConfigType.LONG, unlimited, text, only(unlimited, "partitions are not copied by brokers"))


_KEYS = (
    ConfigKey(
        ADVERTISED,
        ConfigType.STRING,
        None,
        "By listener, the address that its clients get: OUTSIDE://host:port,…; one without it advertises the address"
        " that it listens on.",
        readable(advertising),
        alterable=False,
    ),
    _static("auto.create.topics.enable", ConfigType.BOOLEAN, "true", "Create a topic when a client first asks for it."),
    _static("broker.id", ConfigType.INT, "1", "This broker's number.", 0),
    _static("node.id", ConfigType.INT, None, "This broker's number."),
    _alterable("compression.type", "compression.type", "Default for topics."),
    _static(
        "connections.max.idle.ms",
        ConfigType.LONG,
        "600000",
        "Time without traffic and without a request in flight after which a connection is closed; -1: for ever.",
        -1,
    ),
    _static(
        FACTOR,
        ConfigType.INT,
        None,
        "Copies of a new topic: those of broker_service.write_quorum, 1 for standalone; no other number is accepted.",
        1,
    ),
    _static("delete.topic.enable", ConfigType.BOOLEAN, "true", "Whether topics may be deleted."),
    _static(
        "fetch.max.bytes", ConfigType.INT, "57671680", "Most bytes of one fetch, also if a client asks for more.", 1024
    ),
    _throttle("follower.replication.throttled.rate", "Bytes a second that followers copy."),
    _static(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        "0",
        "Time that the first join of an empty group waits for others.",
        0,
    ),
    _static("group.max.session.timeout.ms", ConfigType.INT, "1800000", "Longest session time-out.", 1),
    _static(NATIVE_ADVERTISED, ConfigType.STRING, None, "The address of this broker for native clients, as host:port."),
    _static("group.max.size", ConfigType.INT, "2147483647", "Most members of a group.", 1),
    _static("group.min.session.timeout.ms", ConfigType.INT, "6000", "Shortest session time-out.", 1),
    _throttle("leader.replication.throttled.rate", "Bytes a second that leaders give to followers."),
    ConfigKey(
        PROTOCOL_MAP,
        ConfigType.STRING,
        PROTOCOL_MAP_DEFAULT,
        "The protocol of each listener name: INSIDE:PLAINTEXT,…; a listener with another protocol than PLAINTEXT is"
        " refused.",
        readable(protocols),
        alterable=False,
    ),
    ConfigKey(
        LISTENERS,
        ConfigType.STRING,
        None,
        "Names and addresses that the broker listens on for Kafka clients: INSIDE://:9092,OUTSIDE://:19092; without it,"
        " broker.kafka_host and broker.kafka_port.",
        readable(listening),
        alterable=False,
    ),
    _alterable("log.cleanup.policy", "cleanup.policy", "Default for topics."),
    _static("log.dirs", ConfigType.STRING, None, "The data directory."),
    _alterable("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms", "Default for topics."),
    _alterable("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms", "Default for topics."),
    _alterable("log.message.timestamp.type", "message.timestamp.type", "Default for topics."),
    _alterable("log.retention.bytes", "retention.bytes", "Default for topics."),
    _static("log.retention.check.interval.ms", ConfigType.LONG, "300000", "Interval of searches for old segments.", 1),
    ConfigKey(
        "log.retention.hours",
        ConfigType.INT,
        "168",
        "Default retention of topics, unless minutes or ms are set.",
        at_least(-1),
        alterable=False,
    ),
    ConfigKey(
        "log.retention.minutes",
        ConfigType.INT,
        None,
        "Default retention of topics, unless ms are set.",
        at_least(-1),
        alterable=False,
    ),
    ConfigKey("log.retention.ms", ConfigType.LONG, None, "Default retention of topics.", at_least(-1)),
    ConfigKey(
        "log.roll.hours",
        ConfigType.INT,
        "168",
        "Default age of a segment, unless ms are set.",
        at_least(1),
        alterable=False,
    ),
    ConfigKey("log.roll.ms", ConfigType.LONG, None, "Default age of a segment.", at_least(1)),
    _alterable("log.segment.bytes", "segment.bytes", "Default for topics."),
    _static(
        "max.incremental.fetch.session.cache.slots", ConfigType.INT, "1000", "Most fetch sessions kept (KIP-227).", 0
    ),
    _alterable("message.max.bytes", "max.message.bytes", "Default for topics."),
    ConfigKey(
        "max.connection.creation.rate",
        ConfigType.INT,
        INT_MAX,
        "New connections a second.",
        only(INT_MAX, "limit their number with max.connections.per.ip"),
    ),
    ConfigKey(
        "max.connections",
        ConfigType.INT,
        INT_MAX,
        "Most connections of Kafka clients, and as many of native clients; never more than broker.connections_max.",
        at_least(0),
    ),
    ConfigKey(
        "max.connections.per.ip",
        ConfigType.INT,
        INT_MAX,
        "Most connections of one address at the same time.",
        at_least(0),
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        "Limits of single addresses instead, such as 10.0.0.7:100,[fd00::7]:20.",
        readable(address_limits),
    ),
    ConfigKey(
        "metric.reporters",
        ConfigType.LIST,
        "",
        "Java classes that report metrics.",
        only("", "metrics are at /metrics of the admin port"),
    ),
    _alterable(MIN_COPIES, MIN_COPIES, "Default for topics."),
    _static("num.partitions", ConfigType.INT, "1", "Partitions of a topic that is created without a number.", 1),
    _static("offset.metadata.max.bytes", ConfigType.INT, "4096", "Longest text with a committed offset.", 0),
    _static(
        "offsets.retention.check.interval.ms", ConfigType.LONG, "600000", "Interval of searches for old offsets.", 1
    ),
    _static("offsets.retention.minutes", ConfigType.INT, "10080", "Time that an empty group keeps its offsets.", 1),
    _static(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        "50",
        "Partitions of `__consumer_offsets`, read when that topic is created.",
        1,
    ),
    _static("producer.id.expiration.ms", ConfigType.INT, "86400000", "Time that an idle producer is remembered.", 1),
    _throttle("replica.alter.log.dirs.io.max.bytes.per.second", "Bytes a second that are moved between directories."),
    _static("socket.request.max.bytes", ConfigType.INT, "104857600", "Largest request.", 1024),
)

BROKER_CONFIGS: Mapping[str, ConfigKey] = {key.name: key for key in (*_KEYS, *UNUSED_CONFIGS)}

_FALLBACKS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
}
"""Kafka's older names of a key, and the milliseconds in the unit of each."""


DERIVED: Mapping[str, str] = {
    NATIVE_ADVERTISED: "broker.native_advertised_host and broker.native_advertised_port",
    "log.dirs": "data_dir",
    "node.id": "kafka.broker.id",
}
"""The names of values that follow from gnomon's own settings: shown under these names, set under gnomon's."""


_SECURITY = ("ssl.", "sasl.", "listener.name.", "principal.builder.class")
"""Kafka's settings of security features that are not built: a value accepted without effect would be dangerous."""


class ConfigValue(NamedTuple):
    """A value that one source gives for a key. `unit` is the unit of an older name, in milliseconds, else 1."""

    name: str
    given: str | None
    source: ConfigSource
    unit: int = 1

    @property
    def text(self) -> str | None:
        """The value, converted to the unit of the newer key; a negative value means no limit in every unit."""
        if self.unit == 1 or self.given is None or int(self.given) < 0:
            return self.given
        return str(int(self.given) * self.unit)


def check_broker_config(name: str, text: str) -> None:
    """Checks a value for a broker's key.

    Raises:
        InvalidConfig: the key is unknown, or the value is refused.
    """
    key = BROKER_CONFIGS.get(name)
    if key is None and name.startswith(_SECURITY):
        raise InvalidConfig(f"{name} is refused: TLS and SASL are not built yet")
    if key is None:
        raise InvalidConfig(f"Unknown broker config name: {name}")
    if name in DERIVED:
        raise InvalidConfig(f"Configuration {name} follows from another setting: set {DERIVED[name]}")
    key.check(text)


def check_factor(kafka: Mapping[str, str], copies: int) -> None:
    """Checks the default replication factor among the settings that were given.

    Args:
        copies: of each entry of the broker's new ledgers.

    Raises:
        InvalidConfig: the two are not the same.
    """
    given = kafka.get(FACTOR)
    if given is not None and int(given) != copies:
        raise InvalidConfig(
            f"{FACTOR} is {given}, and new ledgers keep {copies} of each entry (broker_service.write_quorum, 1 for "
            "standalone): leave the first one out"
        )


class BrokerConfigs:
    """The values of one broker; `static` are the values from the settings file and the environment."""

    def __init__(self, static: Mapping[str, str]) -> None:
        for name, text in static.items():
            check_broker_config(name, text)
        self._layers: dict[ConfigSource, Mapping[str, str]] = {
            ConfigSource.DYNAMIC_BROKER: {},
            ConfigSource.DYNAMIC_DEFAULT_BROKER: {},
            ConfigSource.STATIC_BROKER: dict(static),
        }
        self.revision = 0
        """Grows with every change, so that users can cache results that depend on the values."""

    def set_derived(self, values: Mapping[str, str]) -> None:
        """Sets values that are known once the broker runs: those of `DERIVED`, its listeners, its copies."""
        static = ConfigSource.STATIC_BROKER
        self.set_layer(static, {**self._layers[static], **values})

    def set_layer(self, source: ConfigSource, values: Mapping[str, str]) -> None:
        """Replaces all values of one source."""
        self._layers[source] = values
        self.revision += 1

    def layer(self, source: ConfigSource) -> Mapping[str, str]:
        """The values of one source."""
        return self._layers[source]

    def synonyms(self, name: str) -> list[ConfigValue]:
        """Every value that a source gives for a broker's key, the effective value first."""
        found = [ConfigValue(name, layer[name], source) for source, layer in self._layers.items() if name in layer]
        for older, unit_ms in _FALLBACKS.get(name, ()):
            older_values = [value for value in self.synonyms(older) if value.given is not None]
            found += [value._replace(unit=unit_ms) for value in older_values]
        default = BROKER_CONFIGS[name].default
        if default is not None or not found:
            found.append(ConfigValue(name, default, ConfigSource.DEFAULT))
        return found

    def text(self, name: str) -> str | None:
        """The effective value of a broker's key."""
        return self.synonyms(name)[0].text

    def number(self, name: str) -> int:
        """The effective value of a numeric key."""
        text = self.text(name)
        assert text is not None, f"{name} has no value"
        return int(text)

    def flag(self, name: str) -> bool:
        """The effective value of a boolean key."""
        return self.text(name) == "true"

    def topic_synonyms(self, name: str, configs: Mapping[str, str]) -> list[ConfigValue]:
        """Every value for a topic's key, the effective value first; `configs` are the values set on the topic."""
        found = [ConfigValue(name, configs[name], ConfigSource.TOPIC)] if name in configs else []
        key = TOPIC_CONFIGS[name]
        if key.synonym is not None:
            found += [value for value in self.synonyms(key.synonym) if value.text is not None]
        else:
            found.append(ConfigValue(name, key.default, ConfigSource.DEFAULT))
        return found

    def topic_values(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The effective value of every topic key."""
        return {name: self.topic_synonyms(name, configs)[0].text or "" for name in TOPIC_CONFIGS}
