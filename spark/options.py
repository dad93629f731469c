"""The options of the source. Names, defaults and precedence are those of Spark's Kafka connector.

1. An unknown option is an error, with the nearest known one. Settings of Kafka's consumer (`kafka.…`) that only tune it
   have no effect; those that protect a connection are refused.
2. `…Timestamp` counts before `…OffsetsByTimestamp`, and that before `…Offsets`.
3. Two of `subscribe`, `subscribePattern` and `assign` are an error, and so is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, NamedTuple

from gnomon.client.addresses import Address, parse_addresses
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.spark.columns import BATCH_BYTES_MAX
from gnomon.spark.offsets import BadOption, parse_assignment, parse_offsets
from gnomon.spark.splits import TASK_BYTES_MAX

_TIME: Final = re.compile(r"([0-9]{1,15})\s*(us|ms|s|m|min|h|d)?")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_NO_PLACES: Final[Mapping[TopicPartition, int]] = MappingProxyType({})
_KNOWN: Final = (
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
)
_WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
_PROTECTION: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
_BY_LOWER: Final = {name.lower(): name for name in (*_KNOWN, *_WITHOUT_EFFECT)}


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

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """The options as Spark hands them over, with names in lower case.

        Raises:
            BadOption: one of them cannot be used.
        """
        options = _Options(given)
        topics, pattern, assigned = options.subscription()
        starting = options.bound("starting", "latest" if streaming else "earliest")
        ending = options.bound("ending", "latest")
        if streaming and ending.option:
            raise BadOption(f"{ending.option}: a stream has no end: use a batch read, or trigger(availableNow=True)")
        if not streaming and LATEST in (starting.default, *starting.each.values()) and not starting.is_time:
            raise BadOption(f"{starting.option}: a batch read that starts at the latest offset would be empty")
        if EARLIEST in (ending.default, *ending.each.values()) and not ending.is_time:
            raise BadOption(f"{ending.option}: a batch read that ends at the earliest offset would be empty")
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
            options.number("maxBatchBytes", 1 << 30) or BATCH_BYTES_MAX,
            options.one_of("failOnDataLoss", ("true", "false")) == "true",
            options.one_of("includeHeaders", ("false", "true")) == "true",
        )


class _Options:
    """The given options, by their names as documented."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given: dict[str, str] = {}
        for name, value in given.items():
            known = _BY_LOWER.get(name.lower())
            if known is not None:
                self._given[known] = value
            elif name.lower().startswith(_PROTECTION) and value != "PLAINTEXT":
                raise BadOption(f"{name}: connections with TLS or SASL are not built yet")
            elif not name.lower().startswith("kafka."):
                nearest = get_close_matches(name.lower(), _BY_LOWER, 1)
                raise BadOption(f"{name}: no such option" + (f"; is it {_BY_LOWER[nearest[0]]}?" if nearest else ""))
        self.one_of("kafka.isolation.level", ("read_uncommitted", "read_committed"))

    def addresses(self) -> tuple[Address, ...]:
        text = self._given.get("kafka.bootstrap.servers")
        if text is None:
            raise BadOption("kafka.bootstrap.servers: give HOST:PORT[,HOST:PORT…] of some brokers")
        try:
            return tuple(parse_addresses(text))
        except ValueError:
            raise BadOption(
                f"kafka.bootstrap.servers={text!r:.200}: give HOST:PORT[,HOST:PORT…] of some brokers"
            ) from None

    def subscription(
        self,
    ) -> tuple[tuple[str, ...] | None, re.Pattern[str] | None, tuple[TopicPartition, ...] | None]:
        ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in self._given]
        if len(ways) != 1:
            given = " and ".join(ways) or "none of them"
            raise BadOption(f"give one of subscribe, subscribePattern and assign: there is {given}")
        text = self._given[ways[0]]
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

    def bound(self, which: str, default: str) -> Bound:
        option = f"{which}Timestamp"
        if option in self._given:
            return Bound(self._number(option, 0), is_time=True, option=option)
        option = f"{which}OffsetsByTimestamp"
        if option in self._given:
            return Bound(None, parse_offsets(option, self._given[option], 0), True, option)
        option = f"{which}Offsets"
        text = self._given.get(option, default)
        named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
        if named is not None:
            return Bound(named, option=option if option in self._given else "")
        return Bound(None, parse_offsets(option, text), option=option)

    def number(self, name: str, highest: int = (1 << 63) - 1) -> int | None:
        return self._number(name, 1, highest) if name in self._given else None

    def _number(self, name: str, lowest: int, highest: int = (1 << 63) - 1) -> int:
        text = self._given[name].strip()
        if not (text.isascii() and text.isdecimal()) or not lowest <= int(text[:20]) <= highest:
            raise BadOption(f"{name}={text!r:.100}: expected a whole number from {lowest} to {highest}")
        return int(text)

    def seconds(self, name: str, default: str) -> float:
        text = self._given.get(name, default).strip().lower()
        found = _TIME.fullmatch(text)
        if found is None:
            raise BadOption(f"{name}={text!r:.100}: expected a time such as 500ms, 30s, 15m, 1h or 1d")
        return int(found[1]) * _SECONDS[found[2] or "ms"]

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        """The value of an option, the first of `values` unless it is given."""
        value = self._given.get(name, values[0]).strip().lower()
        if value not in values:
            raise BadOption(f"{name}={value!r:.100}: expected {' or '.join(values)}")
        return value
