"""`gnomon produce`: the lines of standard input as the records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from gnomon.cli.exit import Failure, kafka_failure
from gnomon.cli.kafka.delivery import BATCH_BYTES, Delivery
from gnomon.cli.kafka.kafka_client import (
    ANSWER_SECONDS,
    check_not_internal,
    check_partition,
    client_config,
    connect,
    kafka_errors,
    topic_configs,
)
from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.kafka.record_lines import NewRecord, TextLine, UnfitLine, json_record
from gnomon.cli.options import PARTITION, SECONDS_MAX, TEXT, TOPIC, Seconds, bootstrap_option, pairs
from gnomon.cli.streams import check_input
from gnomon.wire.kafka.errors import ErrorCode

BATCH_BYTES_DEFAULT = 1_000_000
"""For a topic that was just created, whose configs are not known to all brokers yet."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of a line."
)
@click.option("--key-separator", type=TEXT, metavar="TEXT", help="Splits each line into key and value.")
@click.option(
    "--header-separator", type=TEXT, metavar="TEXT", help="Each line begins with NAME=VALUE,NAME=VALUE before it."
)
@click.option("--tombstone", is_flag=True, help="An empty value is a tombstone (null).")
@click.option("--partition", type=PARTITION, help="Target partition; chosen by key, or spread, unless given.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of each record.")
@click.option(
    "--compression", type=click.Choice(CODECS), default="none", show_default=True, help="Codec of the batches."
)
@click.option(
    "--timeout", type=Seconds(0.001, SECONDS_MAX), default=30, show_default=True, help="Seconds allowed per record."
)
@bootstrap_option
def produce(
    topic: str,
    form: str,
    key_separator: str | None,
    header_separator: str | None,
    tombstone: bool,
    partition: int | None,
    headers: tuple[str, ...],
    compression: str,
    timeout: float,
    bootstrap: str,
) -> None:
    """Write the lines of standard input to a topic.

    Each becomes a record of TOPIC, in order and once (acks=all, idempotent). A line of JSON is an object with `value`
    (null for a tombstone) and, if wanted, `key`, `headers`, `partition` and `timestamp_ms`; `key_base64` and
    `value_base64` are for bytes that are not UTF-8.
    """
    check_not_internal(topic)
    check_input()
    read = _line_form(form, key_separator, header_separator, tombstone)
    named: list[tuple[str, str | bytes | None]] = list(pairs(headers, "--header").items())
    admin = connect(bootstrap)
    _check_target(admin, topic, partition)
    producer = Producer(
        {
            **client_config(bootstrap),
            "enable.idempotence": True,
            "compression.type": compression,
            "partitioner": "murmur2_random",  # that of Java's clients, by which tables place their keys
            "message.timeout.ms": max(1, int(timeout * 1000)),
            "message.max.bytes": _batch_bytes_max(admin, topic),
        }
    )
    delivery = Delivery(producer, topic, named, partition)
    try:
        for number, line in enumerate(sys.stdin.buffer, 1):
            delivery.send(number, _record(read, line, number))
    finally:
        delivery.finish(admin)


def _line_form(
    form: str, key_separator: str | None, header_separator: str | None, tombstone: bool
) -> Callable[[bytes], NewRecord]:
    if form == "text":
        header, key = (None if text is None else text.encode() for text in (header_separator, key_separator))
        return TextLine(header, key, tombstone).record
    if key_separator is not None or header_separator is not None or tombstone:
        raise click.UsageError(
            "JSON has fields for key, headers and tombstones: no --key-separator, --header-separator or --tombstone"
        )
    return json_record


def _record(read: Callable[[bytes], NewRecord], line: bytes, number: int) -> NewRecord:
    try:
        return read(line.removesuffix(b"\n"))
    except UnfitLine as error:
        raise Failure(f"line {number} {error}; it and those after it were not sent") from None


def _batch_bytes_max(admin: AdminClient, topic: str) -> int:
    """The largest batch that the topic accepts, within the range of librdkafka's setting."""
    try:
        return min(max(int(topic_configs(admin, topic)[BATCH_BYTES].value), 1000), 1_000_000_000)
    except Failure:
        return BATCH_BYTES_DEFAULT


def _check_target(admin: AdminClient, topic: str, partition: int | None) -> None:
    """Asks for the topic, which creates it if the broker allows that."""
    with kafka_errors(f"produce to topic {topic!r}"):
        found = admin.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None and found.error.code() != ErrorCode.LEADER_NOT_AVAILABLE:
        code, text = found.error.code(), found.error.str()
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            text += f"; `gnomon topic create {topic}` creates it"
        raise kafka_failure(f"produce to topic {topic!r}", code, text)
    if partition is not None and found.partitions:
        check_partition(topic, partition, found.partitions)
