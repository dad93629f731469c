"""Kafka's broker configs for machinery that gnomon lacks: accepted in Kafka's types and bounds, without effect.

A key is here only if every value of it is harmless. A value that would promise something (a limit, compaction,
security) is refused by `broker_configs`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from gnomon.broker.configs.config_key import ConfigKey, ConfigType, any_value, at_least
from gnomon.broker.configs.topic_configs import LONG_MAX, NO_TIERS, TOPIC_CONFIGS

_THREADS = "one thread serves requests, and one writes to each store"
_NO_CLEANER = "topics are not compacted"
_GIB = str(1 << 30)


def _unused(
    name: str,
    kind: ConfigType,
    default: str | None,
    why: str,
    judge: Callable[[str], str | None] = any_value,
    *,
    alterable: bool = True,
) -> ConfigKey:
    return ConfigKey(name, kind, default, f"Without effect: {why}.", judge, alterable=alterable, has_effect=False)


def _threads(name: str, default: str, why: str = _THREADS) -> ConfigKey:
    return _unused(name, ConfigType.INT, default, why, at_least(1))


_OWN = (
    _threads("background.threads", "10"),
    _unused("log.cleaner.backoff.ms", ConfigType.LONG, "15000", _NO_CLEANER, at_least(0)),
    _unused("log.cleaner.dedupe.buffer.size", ConfigType.LONG, str(128 << 20), _NO_CLEANER),
    _unused("log.cleaner.io.buffer.load.factor", ConfigType.DOUBLE, "0.9", _NO_CLEANER),
    _unused("log.cleaner.io.buffer.size", ConfigType.INT, str(512 << 10), _NO_CLEANER, at_least(0)),
    _unused("log.cleaner.io.max.bytes.per.second", ConfigType.DOUBLE, "1.7976931348623157E308", _NO_CLEANER),
    _threads("log.cleaner.threads", "1", _NO_CLEANER),
    _unused(
        "log.flush.scheduler.interval.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        "an acknowledgement follows a sync",
        alterable=False,
    ),
    _unused(
        "log.roll.jitter.hours", ConfigType.INT, "0", "time-based rolls are not spread", at_least(0), alterable=False
    ),
    _threads("num.io.threads", "8"),
    _threads("num.network.threads", "3"),
    _threads("num.recovery.threads.per.data.dir", "2"),
    _threads("num.replica.fetchers", "1", "brokers copy nothing from each other"),
    _unused("remote.fetch.max.wait.ms", ConfigType.INT, "500", NO_TIERS, at_least(1)),
    _unused("remote.list.offsets.request.timeout.ms", ConfigType.LONG, "30000", NO_TIERS, at_least(1)),
    _unused("remote.log.index.file.cache.total.size.bytes", ConfigType.LONG, _GIB, NO_TIERS, at_least(1)),
    _threads("remote.log.manager.copier.thread.pool.size", "10", NO_TIERS),
    _unused("remote.log.manager.copy.max.bytes.per.second", ConfigType.LONG, str(LONG_MAX), NO_TIERS, at_least(1)),
    _threads("remote.log.manager.expiration.thread.pool.size", "10", NO_TIERS),
    _unused("remote.log.manager.fetch.max.bytes.per.second", ConfigType.LONG, str(LONG_MAX), NO_TIERS, at_least(1)),
    _threads("remote.log.reader.threads", "10", NO_TIERS),
    _unused("transaction.partition.verification.enable", ConfigType.BOOLEAN, "true", "transactions are not built"),
)
_WITHOUT_DEFAULT = ("log.flush.interval.ms", "log.roll.jitter.ms")
"""These keys have the value of an older name unless they are set."""


def _defaults_of_topics() -> list[ConfigKey]:
    """The broker keys that topic keys without effect fall back to."""
    found = []
    for key in TOPIC_CONFIGS.values():
        if key.synonym is not None and not key.has_effect:
            default = None if key.synonym in _WITHOUT_DEFAULT else key.default
            about = f"default of `{key.name}` for topics"
            found.append(_unused(key.synonym, key.type, default, about, key.judge))
    return found


UNUSED_CONFIGS = (*_OWN, *_defaults_of_topics())
