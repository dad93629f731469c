"""Every topic config that Kafka's tools expect, and what of them holds here."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.broker.config_key import ConfigKey, ConfigType, InvalidConfig, at_least, between, one_of, only
from gnomon.broker.partition.log import LogSettings
from gnomon.wire.kafka.compression import Codec

LONG_MAX = (1 << 63) - 1

MIN_COPIES = "min.insync.replicas"
HOLD = "gnomon.retention.hold"
HOLD_SUBSCRIPTIONS, HOLD_NONE = "subscriptions", "none"
BACKLOG_BYTES = "gnomon.backlog.quota.bytes"
BACKLOG_MS = "gnomon.backlog.quota.ms"
BACKLOG_POLICY = "gnomon.backlog.quota.policy"
REFUSE_PRODUCE, DROP_OLDEST = "refuse-produce", "drop-oldest"

_NO_COMPACTION = "log compaction is not built yet; topics are cut by time, size and DeleteRecords"
_COMPACTED_ONLY = (
    "For compacted topics only, of which there are none: every value is kept, as Kafka keeps it for the rest."
)
_NO_INDEX = "offsets are found in the ledger itself, there are no index files"
_NO_TIERS = "tiered storage is not built"
NO_REPLICAS = "brokers keep no copies, bookies do: see broker_service.write_quorum"
_ONE_LEVEL = "the broker compresses at one level of its own"


_CODECS = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE}}


def _timestamp_type(text: str) -> str | None:
    return None if text in ("CreateTime", "LogAppendTime") else "must be CreateTime or LogAppendTime"


def _compression_type(text: str) -> str | None:
    return None if text in ("producer", *_CODECS) else f"must be producer or one of {', '.join(_CODECS)}"


_KEYS = (
    ConfigKey("cleanup.policy", ConfigType.LIST, "delete", "What happens to old data.", only("delete", _NO_COMPACTION)),
    ConfigKey(
        "compression.gzip.level", ConfigType.INT, "-1", "Level when the broker compresses.", only("-1", _ONE_LEVEL)
    ),
    ConfigKey("compression.lz4.level", ConfigType.INT, "9", "Level when the broker compresses.", only("9", _ONE_LEVEL)),
    ConfigKey(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "`producer` keeps batches as they come; else the broker compresses those that differ, in its one thread.",
        _compression_type,
        synonym="compression.type",
    ),
    ConfigKey(
        "compression.zstd.level", ConfigType.INT, "3", "Level when the broker compresses.", only("3", _ONE_LEVEL)
    ),
    ConfigKey("delete.retention.ms", ConfigType.LONG, "86400000", _COMPACTED_ONLY, at_least(0)),
    ConfigKey(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "60000",
        "Time before the file of a deleted segment goes; segments are no files here, so every value is kept.",
        at_least(0),
    ),
    ConfigKey(
        "flush.messages",
        ConfigType.LONG,
        str(LONG_MAX),
        "Messages between two syncs; each acknowledgement follows a sync here, so every value is kept.",
        at_least(1),
    ),
    ConfigKey(
        "flush.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        "Time between two syncs; each acknowledgement follows a sync here, so every value is kept.",
        at_least(0),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas", ConfigType.LIST, "", "Followers to throttle.", only("", NO_REPLICAS)
    ),
    ConfigKey(
        BACKLOG_BYTES,
        ConfigType.LONG,
        "-1",
        "Most bytes of a partition that the slowest durable subscription, of the topic or of a shadow, may not have "
        "read; -1: no bound.",
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
        "What happens beyond either: `refuse-produce` answers producers with POLICY_VIOLATION, `drop-oldest` gives up "
        "the oldest records, for all readers.",
        one_of(REFUSE_PRODUCE, DROP_OLDEST),
    ),
    ConfigKey(
        HOLD,
        ConfigType.STRING,
        HOLD_SUBSCRIPTIONS,
        "`subscriptions`: retention gives up nothing that a durable subscription of the topic or of a shadow has not "
        "read. `none`: it goes by time and size alone.",
        one_of(HOLD_SUBSCRIPTIONS, HOLD_NONE),
    ),
    ConfigKey("index.interval.bytes", ConfigType.INT, "4096", "Bytes per index entry.", only("4096", _NO_INDEX)),
    ConfigKey(
        "leader.replication.throttled.replicas", ConfigType.LIST, "", "Leaders to throttle.", only("", NO_REPLICAS)
    ),
    ConfigKey("local.retention.bytes", ConfigType.LONG, "-2", "Size kept on local disk.", only("-2", _NO_TIERS)),
    ConfigKey("local.retention.ms", ConfigType.LONG, "-2", "Time kept on local disk.", only("-2", _NO_TIERS)),
    ConfigKey("max.compaction.lag.ms", ConfigType.LONG, str(LONG_MAX), _COMPACTED_ONLY, at_least(1)),
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
        "Whose clock stamps the records.",
        _timestamp_type,
        synonym="log.message.timestamp.type",
    ),
    ConfigKey("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", _COMPACTED_ONLY, between(0, 1)),
    ConfigKey("min.compaction.lag.ms", ConfigType.LONG, "0", _COMPACTED_ONLY, at_least(0)),
    ConfigKey(
        MIN_COPIES,
        ConfigType.INT,
        "1",
        "Copies on disk when a record is acknowledged: at most those of broker_service.ack_quorum, 1 where bookies are"
        " not replicated. It is these with every value, and with acks=1 too.",
        at_least(1),
        synonym=MIN_COPIES,
    ),
    ConfigKey(
        "preallocate",
        ConfigType.BOOLEAN,
        "false",
        "Create segment files at full size.",
        only("false", "segments are ledgers in LMDB, there are no files to preallocate"),
    ),
    ConfigKey("remote.log.copy.disable", ConfigType.BOOLEAN, "false", "Stop tiering.", only("false", _NO_TIERS)),
    ConfigKey("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", "Drop tiers.", only("false", _NO_TIERS)),
    ConfigKey("remote.storage.enable", ConfigType.BOOLEAN, "false", "Tiered storage.", only("false", _NO_TIERS)),
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
    ConfigKey("segment.index.bytes", ConfigType.INT, "10485760", "Size of an index.", only("10485760", _NO_INDEX)),
    ConfigKey(
        "segment.jitter.ms",
        ConfigType.LONG,
        "0",
        "Spread of time-based rolls.",
        only("0", "rolls are not spread; a roll costs one metadata transaction"),
    ),
    ConfigKey(
        "segment.ms",
        ConfigType.LONG,
        "604800000",
        "Age at which a new segment begins.",
        at_least(1),
        synonym="log.roll.ms",
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "Let a stale copy lead.",
        only("false", "a ledger's entries are recovered before anyone may append"),
    ),
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}


def check_topic_configs(configs: Mapping[str, str | None], ack_quorum: int) -> dict[str, str]:
    """The configs as they are to be kept.

    Args:
        ack_quorum: copies on disk before a record is acknowledged.

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
        if name == MIN_COPIES and int(text) > ack_quorum:
            raise InvalidConfig(
                f"Invalid value {text!r} for configuration {name}: a record is acknowledged with {ack_quorum} on disk"
                " (broker_service.ack_quorum)"
            )
        kept[name] = text
    return kept


def log_settings(lookup: Mapping[str, str], producer_expiry_ms: int) -> LogSettings:
    """What the log obeys, from a topic's resolved configs (every key present)."""
    return LogSettings(
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
    )
