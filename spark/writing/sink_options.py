"""The options of the sink. Those that it shares with Spark's Kafka connector have the connector's names and meanings.

1. The writer of a stream is `writer`, else its query id. The writer of a batch job is `txnAppId`, else a new name.
2. `txnAppId` and `txnVersion` come together, and only for batch jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gnomon.client.addresses import Address
from gnomon.log.topic_name import is_topic_name
from gnomon.spark.given_options import GivenOptions
from gnomon.spark.offsets import BadOption
from gnomon.wire.kafka.compression import Codec

WRITER_CHARACTERS_MAX: Final = 200
_WRITER: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{WRITER_CHARACTERS_MAX}}}")
BATCH_BYTES_MAX: Final = 16 << 20
STAGING_PARTITIONS: Final = 4
STAGING_PARTITIONS_MAX: Final = 1_000
SINK_OPTIONS: Final = (
    "kafka.bootstrap.servers",
    "kafka.compression.type",
    "topic",
    "writer",
    "writerTakeOver",
    "txnAppId",
    "txnVersion",
    "compression",
    "batchBytes",
    "stagingPartitions",
)
_WITHOUT_EFFECT: Final = ("checkpointLocation", "path", "includeHeaders")
"""Spark's own, and one that the connector needs to write headers."""
_CODECS: Final = ("lz4", "none", "gzip", "snappy", "zstd")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one writing query or job."""

    addresses: tuple[Address, ...]
    topic: str | None
    """The topic of all rows; None if a column names it."""
    writer: str | None
    """See invariant 1; None for a query's id, or a new name."""
    version: int | None
    """The number of a batch job (`txnVersion`); None for streams, and for jobs that are not repeated."""
    takes_over: bool
    """Whether the writer may have belonged to another query."""
    compression: Codec
    batch_bytes: int | None
    """The most bytes of a record batch before its compression; None for `row_encoder.usual_batch_bytes`."""
    staging_partitions: int

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """The options as Spark hands them over.

        Raises:
            BadOption: one of them cannot be used.
        """
        options = GivenOptions(given, (*SINK_OPTIONS, *_WITHOUT_EFFECT))
        version = options.number("txnVersion", 0)
        job = options.text("txnAppId")
        if streaming and (job is not None or version is not None):
            raise BadOption("txnAppId and txnVersion are for batch jobs: a stream has the option writer")
        if (job is None) != (version is None):
            raise BadOption("give both of txnAppId and txnVersion: the name of the job, and the number of its run")
        if not streaming and "writer" in options:
            raise BadOption("writer is for streams: a batch job that may be repeated has txnAppId and txnVersion")
        compression = "compression" if "compression" in options else "kafka.compression.type"
        return cls(
            options.addresses(),
            _topic(options.text("topic")),
            checked_writer("txnAppId" if job is not None else "writer", job or options.text("writer")),
            version,
            options.one_of("writerTakeOver", ("false", "true")) == "true",
            Codec[options.one_of(compression, _CODECS).upper()],
            options.number("batchBytes", 1, BATCH_BYTES_MAX),
            options.number("stagingPartitions", 1, STAGING_PARTITIONS_MAX) or STAGING_PARTITIONS,
        )


def checked_writer(option: str, name: str | None) -> str | None:
    """The name of a writer.

    Raises:
        BadOption: it has other characters than a topic's name, or too many.
    """
    if name is not None and not _WRITER.fullmatch(name):
        raise BadOption(
            f"{option}={name!r:.250}: expected 1 to {WRITER_CHARACTERS_MAX} characters from letters, digits, '.', '_'"
            " and '-'"
        )
    return name


def _topic(name: str | None) -> str | None:
    if name is not None and not is_topic_name(name):
        raise BadOption(f"topic={name!r:.300}: this is no name of a topic")
    return name
