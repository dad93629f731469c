"""`gnomon bench`: the rates and latencies that one client gets from a broker, with a topic of its own."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.cli.bench.measured_load import MeasuredLoad
from gnomon.cli.exit import Failure, kafka_failure
from gnomon.cli.kafka.kafka_client import ANSWER_SECONDS, answer, client_config, connect, describe_topic, kafka_errors
from gnomon.cli.options import Seconds, bootstrap_option
from gnomon.cli.output import note, output_option, show_record
from gnomon.cli.signals import interrupt_on_sigterm

RECORDS_MAX = 100_000_000
RECORD_BYTES_MAX = 1_000_000
QUEUE_RECORDS = 10_000
"""Records in the client's queue at full speed; the latency of a record grows with the queue before it."""
FIRST_MEASURED = 1
"""The offset after the record that precedes the measurement in each partition."""
ROUND_TRIPS = 1_000
POLL_SECONDS = 0.1
POLL_RECORDS = 1_000
DELIVERY_SECONDS = 30
LOST_SECONDS = 10.0
"""A round trip that takes longer ends the command."""


@click.command()
@click.option(
    "--records", type=click.IntRange(1, RECORDS_MAX), default=100_000, show_default=True, help="Records to write."
)
@click.option(
    "--record-bytes",
    type=click.IntRange(0, RECORD_BYTES_MAX),
    default=100,
    show_default=True,
    help="Bytes of a record's value.",
)
@click.option(
    "--rate", type=click.IntRange(1, RECORDS_MAX), help="Records a second; as fast as the client can, unless given."
)
@click.option("--partitions", type=click.IntRange(1, 1000), default=1, show_default=True, help="Partitions.")
@click.option(
    "--seconds", type=Seconds(0.1, 3600), default=10, show_default=True, help="Longest time for each of the phases."
)
@bootstrap_option
@output_option
def bench(
    records: int, record_bytes: int, rate: int | None, partitions: int, seconds: float, bootstrap: str, output: str
) -> None:
    """Measure the rates and latencies that one client gets from a broker.

    Creates a topic, writes records to it (acks=all, idempotent), reads them back, sends single records back and forth,
    and deletes the topic.
    """
    admin = connect(bootstrap)
    interrupt_on_sigterm()
    with _topic(admin, partitions) as topic, kafka_errors("measure the broker"):
        run = BenchRun(bootstrap, topic, partitions, record_bytes, seconds)
        loads = [run.produce(records, rate), run.consume(), run.round_trips()]
        leaders = sorted({found.leader.host for found in describe_topic(admin, topic).partitions if found.leader})
    record = {
        "broker": bootstrap,
        "partitions": partitions,
        "record_bytes": record_bytes,
        "rate": rate,
        "phases": [load.row() for load in loads],
    }
    show_record(record, output)
    note(_measured(leaders, rate))
    if run.undelivered:
        raise Failure(f"{run.undelivered} records were not delivered: {run.reason}")


@contextmanager
def _topic(admin: AdminClient, partitions: int) -> Iterator[str]:
    """A topic that is deleted at the end, however the block ends.

    Raises:
        Failure: it was not created, or not deleted.
    """
    topic = f"gnomon-bench-{uuid.uuid4().hex[:12]}"
    new = NewTopic(topic, num_partitions=partitions, replication_factor=-1)
    answer(admin.create_topics([new], request_timeout=ANSWER_SECONDS)[topic], f"create topic {topic!r}")
    try:
        yield topic
    except BaseException:
        try:
            _delete(admin, topic)
        except Failure as failure:
            note(f"Error: {failure}")
        raise
    _delete(admin, topic)


def _delete(admin: AdminClient, topic: str) -> None:
    future = admin.delete_topics([topic], request_timeout=ANSWER_SECONDS)[topic]
    answer(future, f"delete topic {topic!r} (`gnomon topic delete {topic}` does)")


def _measured(leaders: list[str], rate: int | None) -> str:
    """The line that says how the figures were measured."""
    here = all(_is_loopback(host) for host in leaders)
    place = "the client shares this machine with the broker" if here else f"over the network to {', '.join(leaders)}"
    load = (
        f"at full speed, which means behind up to {QUEUE_RECORDS} others in the client's queue (see --rate)"
        if rate is None
        else f"at up to {rate} a second"
    )
    return (
        f"one client in Python (librdkafka), {place}. produce: latency from the call to the acknowledgement, {load};"
        " consume: from the first request to the last record; round-trip: one record at a time, from the call to its"
        " arrival at a waiting consumer."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except OSError:
        return False


class BenchRun:
    """The phases, each of which ends after its records or its time."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, record_bytes: int, seconds: float) -> None:
        self.undelivered = 0
        self.reason = ""
        """Of the first record that was not delivered."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._value = os.urandom(record_bytes)
        self._seconds = seconds
        self._delivered = 0

    def produce(self, records: int, rate: int | None) -> MeasuredLoad:
        """Writes records, spread over the partitions by turns."""
        load = MeasuredLoad("produce")
        producer = self._producer({"queue.buffering.max.messages": QUEUE_RECORDS})

        def done(error: KafkaError | None, message: Message) -> None:
            if error is None:
                load.add(len(self._value), message.latency())
            else:
                self.undelivered += 1
                self.reason = self.reason or str(error.str())

        self._warm_up(producer)
        begin = time.perf_counter()
        for number in range(records):
            now = time.perf_counter() - begin
            if now >= self._seconds:
                break
            while rate is not None and now < number / rate:
                producer.poll(number / rate - now)
                now = time.perf_counter() - begin
            self._queue(producer, number % self._partitions, done)
        while producer.flush(POLL_SECONDS):
            pass
        load.seconds = time.perf_counter() - begin
        self._delivered = load.records
        return load

    def _warm_up(self, producer: Producer) -> None:
        """Writes the first record of each partition, so that connections and the producer's id are there."""
        problems: list[KafkaError] = []
        for partition in range(self._partitions):
            self._queue(producer, partition, lambda error, _message: problems.append(error) if error else None)
        while producer.flush(POLL_SECONDS):
            pass
        if problems:
            raise kafka_failure("write the first records", problems[0].code(), problems[0].str())

    def _queue(self, producer: Producer, partition: int, done: Any) -> None:
        while True:
            try:
                producer.produce(self._topic, self._value, partition=partition, on_delivery=done)
                break
            except BufferError:
                producer.poll(POLL_SECONDS)
        producer.poll(0)

    def consume(self) -> MeasuredLoad:
        """Reads the delivered records back."""
        load = MeasuredLoad("consume")
        consumer = self._consumer(range(self._partitions), FIRST_MEASURED)
        try:
            begin = time.perf_counter()
            while load.records < self._delivered and time.perf_counter() - begin < self._seconds:
                for message in consumer.consume(POLL_RECORDS, POLL_SECONDS):
                    if _record(message) is not None:
                        load.add(len(self._value))
                load.seconds = time.perf_counter() - begin
        finally:
            consumer.close()
        return load

    def round_trips(self) -> MeasuredLoad:
        """Sends one record at a time to a consumer that waits at the end of partition 0."""
        load = MeasuredLoad("round-trip")
        producer = self._producer({"linger.ms": 0})
        consumer = self._consumer([0], OFFSET_END)
        try:
            _next(consumer, at_end=True)
            begin = time.perf_counter()
            while load.records < ROUND_TRIPS and load.seconds < self._seconds:
                sent = time.perf_counter()
                producer.produce(self._topic, self._value, partition=0)
                _next(consumer)
                now = time.perf_counter()
                load.add(len(self._value), now - sent)
                load.seconds = now - begin
                producer.poll(0)
        finally:
            producer.purge()
            consumer.close()
        return load

    def _producer(self, more: dict[str, Any]) -> Producer:
        return Producer(
            {
                **client_config(self._bootstrap),
                "enable.idempotence": True,
                "message.timeout.ms": DELIVERY_SECONDS * 1000,
                **more,
            }
        )

    def _consumer(self, partitions: range | list[int], offset: int) -> Consumer:
        consumer = Consumer(
            {
                **client_config(self._bootstrap),
                "group.id": "gnomon-cli",
                "enable.auto.commit": False,
                "enable.partition.eof": offset == OFFSET_END,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([TopicPartition(self._topic, partition, offset) for partition in partitions])
        return consumer


def _next(consumer: Consumer, *, at_end: bool = False) -> None:
    """Waits for the next record, or until the consumer waits at the end; raises Failure if that takes too long."""
    while True:
        message = consumer.poll(LOST_SECONDS)
        if message is None:
            raise Failure(f"no record arrived within {LOST_SECONDS:g} s")
        if (_record(message) is None) is at_end:
            return


def _record(message: Message) -> Message | None:
    """A message, or None if it is the notice that the consumer is at the end; raises Failure for an error."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise kafka_failure("read the records back", error.code(), error.str())
    return message if error is None else None
