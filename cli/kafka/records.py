"""`gnomon produce` and `gnomon consume`: records as lines."""

from __future__ import annotations

import base64
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gnomon.cli.exit import Failure, kafka_failure
from gnomon.cli.kafka.delivery import BATCH_BYTES, Delivery
from gnomon.cli.kafka.kafka_client import (
    ANSWER_SECONDS,
    check_not_internal,
    check_partition,
    client_config,
    connect,
    describe_topic,
    kafka_errors,
    topic_configs,
)
from gnomon.cli.options import COUNT, OFFSET, PARTITION, SECONDS_MAX, TEXT, TOPIC, Seconds, bootstrap_option, pairs
from gnomon.cli.streams import check_input, check_reader, writes_output
from gnomon.wire.kafka.errors import ErrorCode

POLL_SECONDS = 0.1
POLL_RECORDS = 500
BATCH_BYTES_DEFAULT = 1_000_000
"""For a topic that was just created, whose configs are not known to all brokers yet."""


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("--key-separator", type=TEXT, metavar="TEXT", help="Splits each line into key and value.")
@click.option("--partition", type=PARTITION, help="Target partition; chosen by key, or spread, unless given.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of each record.")
@click.option(
    "--timeout", type=Seconds(0.001, SECONDS_MAX), default=30, show_default=True, help="Seconds allowed per record."
)
@bootstrap_option
def produce(
    topic: str,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    timeout: float,
    bootstrap: str,
) -> None:
    """Write the lines of standard input to a topic.

    Each becomes a record of TOPIC, in order and once (acks=all, idempotent).
    """
    check_not_internal(topic)
    check_input()
    named: list[tuple[str, str | bytes | None]] = list(pairs(headers, "--header").items())
    admin = connect(bootstrap)
    _check_target(admin, topic, partition)
    producer = Producer(
        {
            **client_config(bootstrap),
            "enable.idempotence": True,
            "message.timeout.ms": max(1, int(timeout * 1000)),
            "message.max.bytes": _batch_bytes_max(admin, topic),
        }
    )
    delivery = Delivery(producer, topic, named, partition)
    separator = None if key_separator is None else key_separator.encode()
    try:
        for number, line in enumerate(sys.stdin.buffer, 1):
            key, value = _split(line.removesuffix(b"\n"), separator, number)
            delivery.send(number, key, value)
    finally:
        delivery.finish(admin)


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


def _split(line: bytes, separator: bytes | None, number: int) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise Failure(f"line {number} has no key separator {separator.decode()!r}: it and those after it were not sent")
    return key, value


def _start(ctx: click.Context, param: click.Parameter, text: str) -> int:
    """Kafka's number for the starting position."""
    named: dict[str, int] = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
    if text in named:
        return named[text]
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither earliest, latest nor an offset")
    return OFFSET(text, param, ctx)


@click.command()
@click.argument("topic", type=TOPIC)
@click.option(
    "--from",
    "start",
    metavar="earliest|latest|OFFSET",
    callback=_start,
    default="earliest",
    show_default=True,
    help="Starting position.",
)
@click.option("--partition", type=PARTITION, help="Read only this partition.")
@click.option("--group", type=TEXT, help="Read as a member of this group: start at its offsets, and commit.")
@click.option("--count", type=COUNT, help="End after this many records.")
@click.option("--timeout", type=Seconds(0, SECONDS_MAX), help="End after this many seconds without a record.")
@click.option(
    "--format",
    type=click.Choice(["value", "kv", "json"]),
    default="value",
    show_default=True,
    help="Format of each line.",
)
@bootstrap_option
@writes_output
def consume(
    topic: str,
    start: int,
    partition: int | None,
    group: str | None,
    count: int | None,
    timeout: float | None,
    format: str,
    bootstrap: str,
) -> None:
    """Write the records of a topic to standard output.

    One a line, until interrupted.
    """
    if group is not None and (partition is not None or start >= 0):
        raise click.UsageError("--group shares out the partitions and knows its offsets: no --partition, no OFFSET")
    partitions = [found.id for found in describe_topic(connect(bootstrap), topic).partitions]
    if start >= 0 and partition is None and len(partitions) > 1:
        raise click.UsageError(f"an OFFSET counts in one partition, and {topic!r} has several: give --partition")
    if partition is not None:
        check_partition(topic, partition, partitions)
    consumer = Consumer(
        {
            **client_config(bootstrap),
            "group.id": group or "gnomon-cli",
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": {OFFSET_BEGINNING: "earliest", OFFSET_END: "latest"}.get(start, "error"),
        }
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if group is not None:
            consumer.subscribe([topic])
        else:
            chosen = partitions if partition is None else [partition]
            consumer.assign([TopicPartition(topic, number, start) for number in chosen])
        with suppress(KeyboardInterrupt):
            _read(consumer, topic, FORMATS[format], count, timeout, commits=group is not None)
    finally:
        consumer.close()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _read(
    consumer: Consumer,
    topic: str,
    form: Callable[[Message], bytes],
    count: int | None,
    timeout: float | None,
    *,
    commits: bool,
) -> None:
    """Writes records until there were `count`, or none for `timeout` seconds.

    Raises:
        BrokenPipeError: the reader of standard output is gone.
        Failure: the time ran out before `count`; or the broker sent an error.
    """
    stdout = sys.stdout.buffer
    seen, last = 0, time.monotonic()
    # The time to find the partitions is not counted: it ends with the first record or end of partition.
    patience = None if timeout is None else timeout + ANSWER_SECONDS
    while count is None or seen < count:
        heard = consumer.consume(POLL_RECORDS if count is None else min(POLL_RECORDS, count - seen), POLL_SECONDS)
        messages = _records(heard, topic)
        if not messages:
            check_reader()
        for message in messages:
            stdout.write(form(message) + b"\n")
        stdout.flush()
        if commits:
            for message in messages:
                consumer.store_offsets(message)
        seen += len(messages)
        if heard:
            last, patience = time.monotonic(), timeout
        elif patience is not None and time.monotonic() - last >= patience:
            if count is not None:
                raise Failure(f"topic {topic!r} gave {seen} records, not {count}, and then none for {patience:g} s")
            return


def _records(heard: list[Message], topic: str) -> list[Message]:
    """The received messages without the ends of partitions.

    Raises:
        Failure: the broker sent an error.
    """
    records = []
    for message in heard:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.code() != KafkaError._PARTITION_EOF:
            raise kafka_failure(f"consume topic {topic!r}", error.code(), error.str())
    return records


def _value(message: Message) -> bytes:
    return message.value() or b""


def _key_and_value(message: Message) -> bytes:
    return (message.key() or b"") + b"\t" + (message.value() or b"")


def _json(message: Message) -> bytes:
    headers: Any = message.headers() or []
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        **_named("key", message.key()),
        **_named("value", message.value()),
        "headers": [{"name": name, **_named("value", value)} for name, value in headers],
    }
    return json.dumps(record, ensure_ascii=False).encode()


def _named(name: str, content: Any) -> dict[str, str | None]:
    """Bytes as text if they are UTF-8, else as base64 under a name that says so."""
    if content is None:
        return {name: None}
    try:
        return {name: bytes(content).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


FORMATS: dict[str, Callable[[Message], bytes]] = {"value": _value, "kv": _key_and_value, "json": _json}
