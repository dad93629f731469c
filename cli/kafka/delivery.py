"""Sends lines to a topic as records, and counts the delivered and the refused ones."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from gnomon.broker.configs.topic_configs import BACKLOG_BYTES, BACKLOG_MS
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.cli.exit import Failure
from gnomon.cli.kafka.kafka_client import topic_configs
from gnomon.cli.kafka.record_lines import NewRecord
from gnomon.cli.output import note
from gnomon.wire.kafka.errors import ErrorCode

POLL_SECONDS = 0.1
BATCH_BYTES = "max.message.bytes"


class DeliveryRefused(NamedTuple):
    """A line that did not become a record."""

    number: int
    size_bytes: int
    error: Any


class Delivery:
    """Sends records and counts their outcomes."""

    def __init__(
        self, producer: Producer, topic: str, headers: list[tuple[str, str | bytes | None]], partition: int | None
    ) -> None:
        """Sends nothing yet.

        Args:
            headers: precede those of each record.
            partition: of records that name none; None lets the producer choose.
        """
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._delivered = 0
        self._failed = 0
        self._refused: DeliveryRefused | None = None
        """The first one."""

    def send(self, number: int, record: NewRecord) -> None:
        """Queues the record of a line; waits while the queue is full."""
        done = partial(self._done, number, len(record.key or b"") + len(record.value or b""))
        partition = self._partition if record.partition is None else record.partition
        optional: dict[str, Any] = {} if partition is None else {"partition": partition}
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        headers = [*self._headers, *record.headers]
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, headers=headers, on_delivery=done, **optional
                )
                break
            except BufferError:
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:  # raised by librdkafka itself, for example for a record that is too large
                done(error.args[0], None)
                break
        self._producer.poll(0)

    def _done(self, number: int, size_bytes: int, error: Any, _message: Message | None) -> None:
        if error is None:
            self._delivered += 1
        else:
            self._failed += 1
            self._refused = self._refused or DeliveryRefused(number, size_bytes, error)

    def finish(self, admin: AdminClient) -> None:
        """Waits for queued records and reports the number of delivered ones.

        Args:
            admin: is asked for the topic's configs if a record was refused, since librdkafka does not pass the broker's
                message on.

        Raises:
            Failure: some were not delivered.
        """
        try:
            while self._producer.flush(POLL_SECONDS):
                pass
        except KafkaException as error:  # librdkafka gives up altogether
            raise Failure(
                f"{self._delivered} records were delivered to topic {self._topic!r}, of the others some may have been:"
                f" {error.args[0].str()}"
            ) from error
        note(f"delivered {self._delivered} records to topic {self._topic!r}")
        if self._refused is not None:
            why = why_refused(self._refused, admin, self._topic)
            raise Failure(f"{self._failed} records were not delivered to topic {self._topic!r}: {why}")


def why_refused(refused: DeliveryRefused, admin: AdminClient, topic: str) -> str:
    """The reason of a refusal, and what to do."""
    code = refused.error.code()
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        size_bytes_max = topic_configs(admin, topic)[BATCH_BYTES].value
        return (
            f"line {refused.number} of {refused.size_bytes} bytes makes a batch of more than {size_bytes_max}, which"
            f" {BATCH_BYTES} allows: write shorter lines, or `gnomon topic alter {topic} --set {BATCH_BYTES}=BYTES`"
        )
    if code == ErrorCode.POLICY_VIOLATION:
        configs = topic_configs(admin, topic)
        if SHADOW_SOURCE in configs:
            return f"it is a shadow of {configs[SHADOW_SOURCE].value!r}: write to the source"
        quotas = " and ".join(f"{name}={configs[name].value}" for name in (BACKLOG_BYTES, BACKLOG_MS))
        return (
            f"a subscription, of it or of a shadow, has a larger backlog than its quota allows ({quotas}): have it"
            f" read, delete it, or raise the quota with `gnomon topic alter {topic} --set NAME=VALUE`"
        )
    return f"the first is line {refused.number}: {refused.error.str()}; of those that timed out, some may have been"
