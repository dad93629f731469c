"""`gnomon consume`: the records of a topic, on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from gnomon.cli.exit import Failure, kafka_failure
from gnomon.cli.kafka.kafka_client import (
    ANSWER_SECONDS,
    EARLIEST,
    LATEST,
    client_config,
    connect,
    offsets,
    offsets_at,
    partitions_of,
)
from gnomon.cli.kafka.known_names import group_names, topic_names
from gnomon.cli.kafka.position import LogEdge, Position, edge_names, position_given
from gnomon.cli.kafka.reading import ReadingBounds, newest
from gnomon.cli.kafka.record_format import Form, format_given, format_names
from gnomon.cli.options import COUNT, PARTITION, SECONDS_MAX, TEXT, TOPIC, Seconds, bootstrap_option
from gnomon.cli.signals import interrupt_on_sigterm
from gnomon.cli.streams import check_reader, writes_output

POLL_SECONDS = 0.1
POLL_RECORDS = 500
LAST_MAX = 100_000
"""Records of each partition that `--last` may keep in memory."""
EDGE_OFFSETS: dict[Position, int] = {LogEdge.EARLIEST: OFFSET_BEGINNING, LogEdge.LATEST: OFFSET_END}


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.option(
    "--from",
    "start",
    callback=position_given,
    shell_complete=edge_names,
    metavar="POSITION",
    help="First record: earliest unless given.",
)
@click.option(
    "--to",
    "stop",
    callback=position_given,
    shell_complete=edge_names,
    metavar="POSITION",
    help="End before this record.",
)
@click.option("--last", type=click.IntRange(1, LAST_MAX), help="The last records of the topic, up to its end now.")
@click.option("--partition", "only", type=PARTITION, multiple=True, help="Read only this partition; may be repeated.")
@click.option(
    "--group",
    type=TEXT,
    shell_complete=group_names,
    help="Read as a member of this group: start at its offsets, and commit.",
)
@click.option("--count", type=COUNT, help="End after this many records.")
@click.option("--timeout", type=Seconds(0, SECONDS_MAX), help="End after this many seconds without a record.")
@click.option(
    "--format",
    "form",
    callback=format_given,
    shell_complete=format_names,
    metavar="value|kv|json|STRING",
    default="value",
    show_default=True,
    help=r"Format of a record; STRING has kcat's fields, such as '%t %p %o %T %k %h %s\n'.",
)
@bootstrap_option
@writes_output
def consume(
    topic: str,
    start: Position | None,
    stop: Position | None,
    last: int | None,
    only: tuple[int, ...],
    group: str | None,
    count: int | None,
    timeout: float | None,
    form: Form,
    bootstrap: str,
) -> None:
    """Write the records of a topic to standard output.

    One a line, until interrupted or until an end that was given. A POSITION is `earliest` (or `beginning`), `latest`
    (or `end`), an offset, or a time: 2026-01-31T18:30:00Z, -1h30m (before now), @1769884200 (seconds or milliseconds
    since 1970). `--to latest` is the end at the start of the command.
    """
    _check_usage(group, start, stop, last, only)
    admin = connect(bootstrap)
    chosen = partitions_of(admin, topic, only, (start, stop))
    bounds = ReadingBounds(None)
    starts: dict[int, int] = {}
    if last is not None:
        starts, ends = _last(admin, topic, chosen, last)
        bounds = ReadingBounds(ends)
    elif group is None:
        starts = _starts(admin, topic, chosen, start or LogEdge.EARLIEST)
        bounds = ReadingBounds(None if stop is None else offsets_at(admin, topic, chosen, stop))
    consumer = _consumer(bootstrap, group, start)
    interrupt_on_sigterm()
    try:
        if group is not None:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
        reading = TopicReading(consumer, topic, bounds, count, timeout)
        # The interrupt is the end of an endless reading, and breaks any other off.
        with suppress(*([KeyboardInterrupt] if bounds.endless and count is None else [])):
            if last is not None and len(chosen) > 1:
                _write_newest(reading, form, last)
            else:
                reading.run(lambda records: _write(records, form, consumer if group is not None else None))
    finally:
        consumer.close()


def _check_usage(
    group: str | None, start: Position | None, stop: Position | None, last: int | None, only: tuple[int, ...]
) -> None:
    if group is not None and (only or stop is not None or last is not None or not isinstance(start, LogEdge | None)):
        raise click.UsageError(
            "--group shares out the partitions and knows its offsets: of --from it takes earliest and latest, for a"
            " group without offsets, and no --to, --last or --partition"
        )
    if last is not None and (start is not None or stop is not None):
        raise click.UsageError("--last is a start and an end: give no --from and no --to")


def _consumer(bootstrap: str, group: str | None, start: Position | None) -> Consumer:
    reset = (start or LogEdge.EARLIEST).value if isinstance(start, LogEdge | None) else "error"
    return Consumer(
        {
            **client_config(bootstrap),
            "group.id": group or "gnomon-cli",
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": reset,
        }
    )


def _starts(admin: AdminClient, topic: str, partitions: list[int], position: Position) -> dict[int, int]:
    """The offset of a position in each partition, or Kafka's number for an edge."""
    if isinstance(position, LogEdge):
        return dict.fromkeys(partitions, EDGE_OFFSETS[position])
    return offsets_at(admin, topic, partitions, position)


def _last(admin: AdminClient, topic: str, partitions: list[int], count: int) -> tuple[dict[int, int], dict[int, int]]:
    """Start and end of the last `count` offsets of each partition."""
    first = offsets(admin, topic, partitions, EARLIEST)
    ends = offsets(admin, topic, partitions, LATEST)
    return {partition: max(first[partition], end - count) for partition, end in ends.items()}, ends


class TopicReading:
    """Reads the records of a consumer until the reading is complete, has enough of them, or waited too long."""

    def __init__(
        self, consumer: Consumer, topic: str, bounds: ReadingBounds, count: int | None, timeout: float | None
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._bounds = bounds
        self._count = count
        self._timeout = timeout

    def run(self, take: Callable[[list[Message]], None]) -> None:
        """Gives the records to `take`, in portions.

        Raises:
            BrokenPipeError: the reader of standard output is gone.
            Failure: the time ran out before the end that was asked for; or the broker sent an error.
        """
        seen, last = 0, time.monotonic()
        # The time to find the partitions is not counted: it ends with the first record or end of partition.
        patience = None if self._timeout is None else self._timeout + ANSWER_SECONDS
        while not self._bounds.complete and (self._count is None or seen < self._count):
            most = POLL_RECORDS if self._count is None else min(POLL_RECORDS, self._count - seen)
            heard = self._consumer.consume(most, POLL_SECONDS)
            records = self._records(heard)
            if not records:
                check_reader()
            take(records)
            seen += len(records)
            if heard:
                last, patience = time.monotonic(), self._timeout
            elif patience is not None and time.monotonic() - last >= patience:
                return self._check_end(seen, patience)
        return None

    def _check_end(self, seen: int, patience: float) -> None:
        if self._count is not None:
            raise Failure(
                f"topic {self._topic!r} gave {seen} records, not {self._count}, and then none for {patience:g} s"
            )
        if not self._bounds.endless:
            raise Failure(
                f"topic {self._topic!r} gave {seen} records, and then none for {patience:g} s before the end of --to"
            )

    def _records(self, heard: list[Message]) -> list[Message]:
        """The received messages that belong to the reading.

        Raises:
            Failure: the broker sent an error.
        """
        records = []
        for message in heard:
            error = message.error()
            if error is None:
                if self._bounds.belongs(message):
                    records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._bounds.log_ends(message)
            else:
                raise kafka_failure(f"consume topic {self._topic!r}", error.code(), error.str())
        return records


def _write(records: list[Message], form: Form, group: Consumer | None = None) -> None:
    """Writes records; those of a group are committed afterwards."""
    stdout = sys.stdout.buffer
    for record in records:
        stdout.write(form(record))
    stdout.flush()
    if group is not None:
        for record in records:
            group.store_offsets(record)


def _write_newest(reading: TopicReading, form: Form, count: int) -> None:
    """Writes the newest records of several partitions, by time."""
    kept: list[Message] = []
    reading.run(kept.extend)
    _write(newest(kept, count), form)
