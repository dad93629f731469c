"""The options of the source. Names, defaults and precedence are those of Spark's Kafka connector.

1. `…Timestamp` counts before `…OffsetsByTimestamp`, and that before `…Offsets`.
2. Two of `subscribe`, `subscribePattern` and `assign` are an error, and so is none.
3. A stream may have an end, unlike one of the connector: `streaming`, invariant 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from gnomon.client.addresses import Address, parse_addresses
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.log.plans.read_hold import SECONDS, SECONDS_MAX
from gnomon.spark.columns import BATCH_BYTES_MAX
from gnomon.spark.given_options import GivenOptions
from gnomon.spark.offsets import BadOption, parse_assignment, parse_offsets
from gnomon.spark.splits import TASK_BYTES_MAX

_NO_PLACES: Final[Mapping[TopicPartition, int]] = MappingProxyType({})
SOURCE_OPTIONS: Final = (
    "kafka.bootstrap.servers",
    "kafka.isolation.level",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerTask",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBatchBytes",
    "failOnDataLoss",
    "includeHeaders",
    "via",
    "holdSeconds",
    "gnomon.native.servers",
    "group",
)
SOURCE_OPTIONS_WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
"""Options of the connector alone."""


class Bound(NamedTuple):
    """Where a read of each partition starts or ends."""

    default: int | None
    """EARLIEST, LATEST or a time, of each partition that is not in `each`; None if all are."""
    each: Mapping[TopicPartition, int] = _NO_PLACES
    is_time: bool = False
    """Whether the numbers are times, in milliseconds since 1970."""
    option: str = ""
    """The option that gives it."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read; exactly one of `topics`, `pattern` and `assigned` is given."""

    addresses: tuple[Address, ...]
    topics: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    assigned: tuple[TopicPartition, ...] | None
    starting: Bound
    ending: Bound
    late_start_is_latest: bool
    """Whether a start behind all records is the end of the log (`startingOffsetsByTimestampStrategy`)."""
    tasks_min: int
    task_records_max: int | None
    task_bytes_max: int
    """Of a task that reads bookies (`maxBytesPerTask`): a plan has the bytes of its entries."""
    batch_offsets_max: int | None
    """Offsets that a batch of a stream has at most (`maxOffsetsPerTrigger`)."""
    batch_offsets_min: int
    """Offsets that a batch of a stream waits for (`minOffsetsPerTrigger`)."""
    batch_delay_seconds: float
    """The longest time that it waits for them, since the last batch (`maxTriggerDelay`)."""
    batch_bytes_max: int
    fail_on_data_loss: bool
    include_headers: bool
    via: str
    """`auto`, `bookies` or `brokers`."""
    native_servers: str | None
    """Native addresses of brokers (`gnomon.native.servers`); None to ask the brokers."""
    hold_seconds: int
    """The time for which records are held that were planned (`holdSeconds`)."""
    group: str | None
    """The consumer group that shows how far a stream has come."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """The options as Spark hands them over, with names in lower case.

        Raises:
            BadOption: one of them cannot be used.
        """
        options = GivenOptions(given, (*SOURCE_OPTIONS, *SOURCE_OPTIONS_WITHOUT_EFFECT))
        options.one_of("kafka.isolation.level", ("read_uncommitted", "read_committed"))
        topics, pattern, assigned = _subscription(options)
        starting = _bound(options, "starting", "latest" if streaming else "earliest")
        ending = _bound(options, "ending", "latest")
        if not streaming and LATEST in (starting.default, *starting.each.values()) and not starting.is_time:
            raise BadOption(f"{starting.option}: a batch read that starts at the latest offset would be empty")
        if EARLIEST in (ending.default, *ending.each.values()) and not ending.is_time:
            raise BadOption(f"{ending.option}: a read that ends at the earliest offset would be empty")
        return cls(
            options.addresses(),
            topics,
            pattern,
            assigned,
            starting,
            ending,
            options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
            options.number("minPartitions") or 1,
            options.number("maxRecordsPerPartition"),
            options.number("maxBytesPerTask") or TASK_BYTES_MAX,
            options.number("maxOffsetsPerTrigger"),
            options.number("minOffsetsPerTrigger") or 1,
            options.seconds("maxTriggerDelay", "15m"),
            options.number("maxBatchBytes", 1, 1 << 30) or BATCH_BYTES_MAX,
            options.one_of("failOnDataLoss", ("true", "false")) == "true",
            options.one_of("includeHeaders", ("false", "true")) == "true",
            options.one_of("via", ("auto", "bookies", "brokers")),
            _native(options),
            options.number("holdSeconds", 1, SECONDS_MAX) or SECONDS,
            options.text("group") or None,
        )


def _subscription(
    options: GivenOptions,
) -> tuple[tuple[str, ...] | None, re.Pattern[str] | None, tuple[TopicPartition, ...] | None]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(ways) != 1:
        given = " and ".join(ways) or "none of them"
        raise BadOption(f"give one of subscribe, subscribePattern and assign: there is {given}")
    text = options.text(ways[0]) or ""
    if ways[0] == "assign":
        return None, None, tuple(parse_assignment("assign", text))
    if ways[0] == "subscribePattern":
        try:
            return None, re.compile(text), None
        except re.error as error:
            raise BadOption(f"subscribePattern={text!r:.200}: {error}") from None
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise BadOption(f"subscribe={text!r:.200}: give the names of topics, separated by commas")
    return topics, None, None


def _native(options: GivenOptions) -> str | None:
    text = options.text("gnomon.native.servers")
    if text is not None:
        try:
            parse_addresses(text)
        except ValueError:
            raise BadOption(
                f"gnomon.native.servers={text!r:.200}: give HOST:PORT[,HOST:PORT…] of some brokers"
            ) from None
    return text


def _bound(options: GivenOptions, which: str, default: str) -> Bound:
    option = f"{which}Timestamp"
    if option in options:
        return Bound(options.number(option, 0), is_time=True, option=option)
    option = f"{which}OffsetsByTimestamp"
    text = options.text(option)
    if text is not None:
        return Bound(None, parse_offsets(option, text, 0), True, option)
    option = f"{which}Offsets"
    text = options.text(option) or default
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return Bound(named, option=option if option in options else "")
    return Bound(None, parse_offsets(option, text), option=option)
