"""The broker's settings that go by Kafka's names: the table, and their values as they stand now.

1. A value comes from the first of: set on this broker, set on all brokers (both kept in the metadata, alterable while
   it runs), the settings file or environment, the default.
2. Where Kafka lets a topic's config fall back to a broker's, `topic_synonyms` does: topic, then the four above. Others
   go from the topic to the key's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gnomon.broker.config_key import ConfigKey, ConfigSource, ConfigType, InvalidConfig, at_least, only
from gnomon.broker.topic_configs import LONG_MAX, MIN_COPIES, NO_REPLICAS, TOPIC_CONFIGS

_HOUR_MS = 3_600_000


def _static(
    name: str, kind: ConfigType, default: str | None, text: str, low: int | None = None, only_reason: str | None = None
) -> ConfigKey:
    judge = at_least(low) if low is not None else (lambda _: None)
    if only_reason is not None and default is not None:
        judge = only(default, only_reason)
    return ConfigKey(name, kind, default, text, judge, alterable=False)


def _alterable(name: str, topic_name: str, text: str) -> ConfigKey:
    """A broker key that a topic key falls back to: same type, default and rules."""
    topic_key = TOPIC_CONFIGS[topic_name]
    return ConfigKey(name, topic_key.type, topic_key.default, text, topic_key.judge)


def _throttle(name: str, text: str) -> ConfigKey:
    """A rate that `kafka-reassign-partitions.sh` takes away after every reassignment, whether it was set or not."""
    unlimited = str(LONG_MAX)
    return ConfigKey(name, ConfigType.LONG, unlimited, text, only(unlimited, "partitions are not copied by brokers"))


_KEYS = (
    _static("advertised.listeners", ConfigType.STRING, None, "Addresses that clients are told."),
    _static("auto.create.topics.enable", ConfigType.BOOLEAN, "true", "Create a topic when a client first asks for it."),
    _static("broker.id", ConfigType.INT, "1", "This broker's number.", 0),
    _static("node.id", ConfigType.INT, None, "This broker's number."),
    _alterable("compression.type", "compression.type", "Who compresses."),
    _static(
        "connections.max.idle.ms",
        ConfigType.LONG,
        "600000",
        "How long nothing may pass on a connection, while no request is in flight, before it is closed; -1: for ever.",
        -1,
    ),
    _static(
        "default.replication.factor",
        ConfigType.INT,
        "1",
        "Copies of a new topic.",
        only_reason=NO_REPLICAS,
    ),
    _static("delete.topic.enable", ConfigType.BOOLEAN, "true", "Whether topics may be deleted."),
    _static("fetch.max.bytes", ConfigType.INT, "57671680", "Most bytes of one fetch, whatever was asked for.", 1024),
    _throttle("follower.replication.throttled.rate", "Bytes a second that followers copy."),
    _static(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        "0",
        "How long the first join of an empty group waits for others.",
        0,
    ),
    _static("group.max.session.timeout.ms", ConfigType.INT, "1800000", "Longest session time-out.", 1),
    _static("group.max.size", ConfigType.INT, "2147483647", "Most members of a group.", 1),
    _static("group.min.session.timeout.ms", ConfigType.INT, "6000", "Shortest session time-out.", 1),
    _throttle("leader.replication.throttled.rate", "Bytes a second that leaders give to followers."),
    _static("listeners", ConfigType.STRING, None, "Addresses that the broker listens on."),
    _static("log.dirs", ConfigType.STRING, None, "The data directory."),
    _alterable("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms", "Default for topics."),
    _alterable("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms", "Default for topics."),
    _alterable("log.message.timestamp.type", "message.timestamp.type", "Default for topics."),
    _alterable("log.retention.bytes", "retention.bytes", "Default for topics."),
    _static(
        "log.retention.check.interval.ms", ConfigType.LONG, "300000", "Time between two looks for old segments.", 1
    ),
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
    ConfigKey(MIN_COPIES, ConfigType.INT, "1", "Default for topics.", only("1", "set it on the topics that want more")),
    _static("num.partitions", ConfigType.INT, "1", "Partitions of a topic that is created without a number.", 1),
    _static("offset.metadata.max.bytes", ConfigType.INT, "4096", "Longest text with a committed offset.", 0),
    _static(
        "offsets.retention.check.interval.ms", ConfigType.LONG, "600000", "Time between two looks for old offsets.", 1
    ),
    _static("offsets.retention.minutes", ConfigType.INT, "10080", "How long an empty group keeps its offsets.", 1),
    _static(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        "50",
        "Partitions of `__consumer_offsets`, read when that topic is created.",
        1,
    ),
    _static("producer.id.expiration.ms", ConfigType.INT, "86400000", "How long an idle producer is remembered.", 1),
    _throttle("replica.alter.log.dirs.io.max.bytes.per.second", "Bytes a second that are moved between directories."),
    _static("socket.request.max.bytes", ConfigType.INT, "104857600", "Largest request.", 1024),
)

BROKER_CONFIGS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}

_FALLBACKS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
}
"""Kafka's older names for the same thing, with the milliseconds of their unit."""


TOLD: Mapping[str, str] = {
    "advertised.listeners": "broker.advertised_host",
    "listeners": "broker.kafka_host and broker.kafka_port",
    "log.dirs": "data_dir",
    "node.id": "kafka.broker.id",
}
"""Kafka's names for what gnomon's own settings say: shown, and set there."""


class ConfigValue(NamedTuple):
    """One value on the way to the one in force; `unit` is what it counts in, where an older name serves another key."""

    name: str
    given: str | None
    source: ConfigSource
    unit: int = 1

    @property
    def text(self) -> str | None:
        """The value in the unit of the key that it serves; a negative one means no limit in every unit."""
        if self.unit == 1 or self.given is None or int(self.given) < 0:
            return self.given
        return str(int(self.given) * self.unit)


def check_broker_config(name: str, text: str) -> None:
    """Accepts a value for a broker's key.

    Raises:
        InvalidConfig: the key is unknown, or the value is refused.
    """
    key = BROKER_CONFIGS.get(name)
    if key is None:
        raise InvalidConfig(f"Unknown broker config name: {name}")
    if name in TOLD:
        raise InvalidConfig(f"Configuration {name} follows from another setting: set {TOLD[name]}")
    key.check(text)


class BrokerConfigs:
    """The values of one broker; `static` are those of the settings file and the environment."""

    def __init__(self, static: Mapping[str, str]) -> None:
        for name, text in static.items():
            check_broker_config(name, text)
        self._layers: dict[ConfigSource, Mapping[str, str]] = {
            ConfigSource.DYNAMIC_BROKER: {},
            ConfigSource.DYNAMIC_DEFAULT_BROKER: {},
            ConfigSource.STATIC_BROKER: dict(static),
        }
        self.revision = 0
        """Grows with every change, for those who keep something worked out from the values."""

    def tell(self, values: Mapping[str, str]) -> None:
        """Gives the values of `TOLD`, once they are known."""
        static = ConfigSource.STATIC_BROKER
        self.set_layer(static, {**self._layers[static], **values})

    def set_layer(self, source: ConfigSource, values: Mapping[str, str]) -> None:
        """Replaces the values that were set at run time, for this broker or for all."""
        self._layers[source] = values
        self.revision += 1

    def layer(self, source: ConfigSource) -> Mapping[str, str]:
        """The values set there."""
        return self._layers[source]

    def synonyms(self, name: str) -> list[ConfigValue]:
        """Every value that is given for a broker's key, the one in force first."""
        found = [ConfigValue(name, layer[name], source) for source, layer in self._layers.items() if name in layer]
        for older, unit_ms in _FALLBACKS.get(name, ()):
            older_values = [value for value in self.synonyms(older) if value.given is not None]
            found += [value._replace(unit=unit_ms) for value in older_values]
        default = BROKER_CONFIGS[name].default
        if default is not None or not found:
            found.append(ConfigValue(name, default, ConfigSource.DEFAULT))
        return found

    def text(self, name: str) -> str | None:
        """The value in force of a broker's key."""
        return self.synonyms(name)[0].text

    def number(self, name: str) -> int:
        """The value in force of a numeric key."""
        text = self.text(name)
        assert text is not None, f"{name} has no value"
        return int(text)

    def flag(self, name: str) -> bool:
        """The value in force of a boolean key."""
        return self.text(name) == "true"

    def topic_synonyms(self, name: str, configs: Mapping[str, str]) -> list[ConfigValue]:
        """Every value that is given for a topic's key, the one in force first; `configs` are those set on the topic."""
        found = [ConfigValue(name, configs[name], ConfigSource.TOPIC)] if name in configs else []
        key = TOPIC_CONFIGS[name]
        if key.synonym is not None:
            found += [value for value in self.synonyms(key.synonym) if value.text is not None]
        else:
            found.append(ConfigValue(name, key.default, ConfigSource.DEFAULT))
        return found

    def topic_values(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The values in force of every topic key."""
        return {name: self.topic_synonyms(name, configs)[0].text or "" for name in TOPIC_CONFIGS}
