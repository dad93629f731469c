"""Every topic config that Kafka's tools expect, and the values that gnomon honours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gnomon.broker.configs.config_key import (
    ConfigKey,
    ConfigType,
    InvalidConfig,
    any_value,
    at_least,
    between,
    one_of,
    only,
)
from gnomon.broker.partition.log import PartitionSettings
from gnomon.wire.kafka.compression import Codec

LONG_MAX = (1 << 63) - 1

MIN_COPIES = "min.insync.replicas"
HOLD = "gnomon.retention.hold"
HOLD_SUBSCRIPTIONS, HOLD_NONE = "subscriptions", "none"
CONDITIONAL = "gnomon.conditional.write"
BACKLOG_BYTES = "gnomon.backlog.quota.bytes"
BACKLOG_MS = "gnomon.backlog.quota.ms"
BACKLOG_POLICY = "gnomon.backlog.quota.policy"
REFUSE_PRODUCE, DROP_OLDEST = "refuse-produce", "drop-oldest"
VIEW = "gnomon.view"
NO_VIEW, TABLE_VIEW = "none", "kv"
ENGINE = "gnomon.view.engine"
DISK_ENGINE, MEMORY_ENGINE = "disk", "memory"

_NO_COMPACTION = "log compaction is not built yet; topics are cut by time, size and DeleteRecords"
_COMPACTED_ONLY = "For compacted topics only, of which there are none"
_NO_FILES = "For segments in files; they are ledgers here"
_NO_INDEX = "For index files; offsets are found in the ledger itself"
_NOT_SPREAD = "Spread of time-based rolls; they are not spread, as a roll costs one metadata transaction"
_SYNCED = "For syncs in the background; an acknowledgement follows a sync here"
_NEVER_UNCLEAN = "Whether a stale copy may lead; none ever does, as entries are recovered before anybody appends"
_ONE_LEVEL = "Level when the broker compresses; it has one of its own"
_TIERED_ONLY = "For tiered topics only, of which there are none"
NO_TIERS = "tiered storage is not built"
NO_REPLICAS = "brokers keep no copies, bookies do: see broker_service.write_quorum"


def _kept(
    name: str, kind: ConfigType, default: str, about: str, judge: Callable[[str], str | None], synonym: str
) -> ConfigKey:
    """A key without effect in gnomon: tools set it on all their topics."""
    return ConfigKey(name, kind, default, f"{about}: every value is kept.", judge, synonym, has_effect=False)


def _gzip_level(text: str) -> str | None:
    return None if int(text) == -1 or 1 <= int(text) <= 9 else "must be -1 or from 1 to 9"


_CODECS = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE}}


def _timestamp_type(text: str) -> str | None:
    return None if text in ("CreateTime", "LogAppendTime") else "must be CreateTime or LogAppendTime"


def _compression_type(text: str) -> str | None:
    return None if text in ("producer", *_CODECS) else f"must be producer or one of {', '.join(_CODECS)}"


_KEYS = (
    ConfigKey(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "How old data is deleted.",
        only("delete", _NO_COMPACTION),
        synonym="log.cleanup.policy",
    ),
    _kept("compression.gzip.level", ConfigType.INT, "-1", _ONE_LEVEL, _gzip_level, "compression.gzip.level"),
    _kept("compression.lz4.level", ConfigType.INT, "9", _ONE_LEVEL, between(1, 17), "compression.lz4.level"),
    ConfigKey(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "`producer` keeps batches as they come; else the broker compresses those that differ, long ones in a thread.",
        _compression_type,
        synonym="compression.type",
    ),
    _kept("compression.zstd.level", ConfigType.INT, "3", _ONE_LEVEL, between(-131072, 22), "compression.zstd.level"),
    _kept(
        "delete.retention.ms",
        ConfigType.LONG,
        "86400000",
        _COMPACTED_ONLY,
        at_least(0),
        "log.cleaner.delete.retention.ms",
    ),
    _kept("file.delete.delay.ms", ConfigType.LONG, "60000", _NO_FILES, at_least(0), "log.segment.delete.delay.ms"),
    _kept("flush.messages", ConfigType.LONG, str(LONG_MAX), _SYNCED, at_least(1), "log.flush.interval.messages"),
    _kept("flush.ms", ConfigType.LONG, str(LONG_MAX), _SYNCED, at_least(0), "log.flush.interval.ms"),
    ConfigKey(
        "follower.replication.throttled.replicas", ConfigType.LIST, "", "Followers to throttle.", only("", NO_REPLICAS)
    ),
    ConfigKey(
        BACKLOG_BYTES,
        ConfigType.LONG,
        "-1",
        "Most bytes of a partition that the slowest durable subscription, of the topic or of a shadow, may leave "
        "unread; -1: no bound.",
        at_least(-1),
    ),
    ConfigKey(
        BACKLOG_MS,
        ConfigType.LONG,
        "-1",
        "Most milliseconds that the oldest record may wait for the slowest durable subscription; -1: no bound.",
        at_least(-1),
    ),
    ConfigKey(
        BACKLOG_POLICY,
        ConfigType.STRING,
        REFUSE_PRODUCE,
        "The effect of exceeding either quota: `refuse-produce` answers producers with POLICY_VIOLATION, `drop-oldest` "
        "deletes the oldest records, for all readers.",
        one_of(REFUSE_PRODUCE, DROP_OLDEST),
    ),
    ConfigKey(
        CONDITIONAL,
        ConfigType.BOOLEAN,
        "false",
        "Whether the record headers `gnomon.expected.offset`, `gnomon.transaction.id` and `gnomon.fencing.token` are "
        "conditions of a write. Once switched on, it stays on.",
    ),
    ConfigKey(
        HOLD,
        ConfigType.STRING,
        HOLD_SUBSCRIPTIONS,
        "`subscriptions`: retention deletes no record that a durable subscription of the topic or of a shadow has not "
        "read. `none`: retention depends on time and size alone.",
        one_of(HOLD_SUBSCRIPTIONS, HOLD_NONE),
    ),
    ConfigKey(
        VIEW,
        ConfigType.STRING,
        NO_VIEW,
        "`kv`: the topic is a table, the newest value of each key. It is chosen when the topic is created.",
        one_of(NO_VIEW, TABLE_VIEW),
    ),
    ConfigKey(
        ENGINE,
        ConfigType.STRING,
        DISK_ENGINE,
        "Where a broker keeps the entries of a table: `memory`; `disk` is not built yet. It is chosen when the topic "
        "is created.",
        one_of(DISK_ENGINE, MEMORY_ENGINE),
    ),
    _kept("index.interval.bytes", ConfigType.INT, "4096", _NO_INDEX, at_least(0), "log.index.interval.bytes"),
    ConfigKey(
        "leader.replication.throttled.replicas", ConfigType.LIST, "", "Leaders to throttle.", only("", NO_REPLICAS)
    ),
    _kept("local.retention.bytes", ConfigType.LONG, "-2", _TIERED_ONLY, at_least(-2), "log.local.retention.bytes"),
    _kept("local.retention.ms", ConfigType.LONG, "-2", _TIERED_ONLY, at_least(-2), "log.local.retention.ms"),
    _kept(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        _COMPACTED_ONLY,
        at_least(1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    ConfigKey(
        "max.message.bytes",
        ConfigType.INT,
        "1048588",
        "Largest record batch, as it is sent.",
        at_least(0),
        synonym="message.max.bytes",
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        "3600000",
        "How far ahead of the broker's clock a record may be.",
        at_least(0),
        synonym="log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        "How far behind the broker's clock a record may be.",
        at_least(0),
        synonym="log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "The clock that sets the timestamps of records.",
        _timestamp_type,
        synonym="log.message.timestamp.type",
    ),
    _kept(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        _COMPACTED_ONLY,
        between(0, 1),
        "log.cleaner.min.cleanable.ratio",
    ),
    _kept(
        "min.compaction.lag.ms", ConfigType.LONG, "0", _COMPACTED_ONLY, at_least(0), "log.cleaner.min.compaction.lag.ms"
    ),
    ConfigKey(
        MIN_COPIES,
        ConfigType.INT,
        "1",
        "Copies that must be on disk when a record is acknowledged with acks=all. There are as many as"
        " broker_service.ack_quorum says, a majority of the copies for a topic with a replication factor of its own,"
        " and 1 for standalone; where a topic asks for more, acks=all is answered NOT_ENOUGH_REPLICAS (but see"
        " broker.acknowledge_with_fewer_copies).",
        at_least(1),
        synonym=MIN_COPIES,
    ),
    _kept("preallocate", ConfigType.BOOLEAN, "false", _NO_FILES, any_value, "log.preallocate"),
    ConfigKey("remote.log.copy.disable", ConfigType.BOOLEAN, "false", "Stop tiering.", only("false", NO_TIERS)),
    ConfigKey("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", "Drop tiers.", only("false", NO_TIERS)),
    ConfigKey("remote.storage.enable", ConfigType.BOOLEAN, "false", "Tiered storage.", only("false", NO_TIERS)),
    ConfigKey(
        "retention.bytes",
        ConfigType.LONG,
        "-1",
        "Size of a partition above which its oldest segments go; -1: none.",
        at_least(-1),
        synonym="log.retention.bytes",
    ),
    ConfigKey(
        "retention.ms",
        ConfigType.LONG,
        "604800000",
        "Age above which a segment goes; -1: none.",
        at_least(-1),
        synonym="log.retention.ms",
    ),
    ConfigKey(
        "segment.bytes",
        ConfigType.INT,
        "1073741824",
        "Size at which a new segment begins.",
        at_least(14),
        synonym="log.segment.bytes",
    ),
    _kept("segment.index.bytes", ConfigType.INT, "10485760", _NO_INDEX, at_least(4), "log.index.size.max.bytes"),
    _kept("segment.jitter.ms", ConfigType.LONG, "0", _NOT_SPREAD, at_least(0), "log.roll.jitter.ms"),
    ConfigKey(
        "segment.ms",
        ConfigType.LONG,
        "604800000",
        "Age at which a new segment begins.",
        at_least(1),
        synonym="log.roll.ms",
    ),
    _kept(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        _NEVER_UNCLEAN,
        any_value,
        "unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Checks the configs of a topic, and returns them.

    Raises:
        InvalidConfig: a key is unknown, or a value is refused.
    """
    kept = {}
    for name, text in configs.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        if text is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        key.check(text)
        kept[name] = text
    return kept


def is_table(configs: Mapping[str, str]) -> bool:
    """Whether a topic with these configs is a table."""
    return configs.get(VIEW) == TABLE_VIEW


def is_on_disk(configs: Mapping[str, str]) -> bool:
    """Whether a table with these configs has its entries on disk."""
    return configs.get(ENGINE, DISK_ENGINE) == DISK_ENGINE


def check_kept(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Checks that a change of a topic's configs keeps those that only its deletion ends.

    Raises:
        InvalidConfig: it does not.
    """
    if before.get(CONDITIONAL) == "true" and after.get(CONDITIONAL) != "true":
        raise InvalidConfig(
            f"{CONDITIONAL} cannot be switched off, nor left out of AlterConfigs, which replaces all configs: writers "
            "rely on it; create another topic"
        )
    for name, default in ((VIEW, NO_VIEW), (ENGINE, DISK_ENGINE)):
        if before.get(name, default) != after.get(name, default):
            raise InvalidConfig(
                f"{name} is fixed when the topic is created, and cannot be left out of AlterConfigs, which replaces "
                "all configs: create another topic"
            )


def log_settings(lookup: Mapping[str, str], producer_expiry_ms: int, copies: int | None) -> PartitionSettings:
    """The settings of a partition's log, from a topic's resolved configs (every key present).

    Args:
        copies: the number on disk when a record is acknowledged; None accepts every `min.insync.replicas`.
    """
    return PartitionSettings(
        batch_bytes_max=int(lookup["max.message.bytes"]),
        segment_bytes=int(lookup["segment.bytes"]),
        segment_ms=int(lookup["segment.ms"]),
        retention_bytes=int(lookup["retention.bytes"]),
        retention_ms=int(lookup["retention.ms"]),
        log_append_time=lookup["message.timestamp.type"] == "LogAppendTime",
        codec=_CODECS.get(lookup["compression.type"]),
        timestamp_before_ms_max=int(lookup["message.timestamp.before.max.ms"]),
        timestamp_after_ms_max=int(lookup["message.timestamp.after.max.ms"]),
        producer_expiry_ms=producer_expiry_ms,
        held_by_subscriptions=lookup[HOLD] == HOLD_SUBSCRIPTIONS,
        backlog_bytes_max=int(lookup[BACKLOG_BYTES]),
        backlog_ms_max=int(lookup[BACKLOG_MS]),
        backlog_drops=lookup[BACKLOG_POLICY] == DROP_OLDEST,
        enough_copies=copies is None or int(lookup[MIN_COPIES]) <= copies,
        conditional=lookup[CONDITIONAL] == "true",
    )
