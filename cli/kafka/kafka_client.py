"""Talks to a broker as any Kafka client does; errors end a command as `gnomon.cli.exit` defines.

If no Kafka broker listens at an address, librdkafka reports only a timeout, after a long wait. So a plain connection is
opened first, with a request for the supported APIs (ApiVersions): if that fails, the reason is known at once.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import metadata
from typing import Any, TypeVar

import click
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.cli.exit import Exit, Failure, kafka_failure
from gnomon.cli.kafka.position import AtOffset, AtTime, LogEdge, Position
from gnomon.cli.options import BOOTSTRAP_VARIABLE
from gnomon.cli.output import note
from gnomon.log.topic import INTERNAL_TOPICS
from gnomon.runtime.settings.endpoint import PORT_MAX

T = TypeVar("T")

PORT_DEFAULT = 9092
EARLIEST: Any = OffsetSpec.earliest()
LATEST: Any = OffsetSpec.latest()
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 15.0
TOLD_SECONDS = 2.0
"""Seconds after which a line says that the command waits for a broker."""
_DELETE_RECORDS_KEEPS_ITS_LIST = (2, 16)
"""The first version of confluent-kafka whose `delete_records` does not release its argument once too often."""
# A future that is never answered would hang the command.
FUTURE_SECONDS = ANSWER_SECONDS + 5


def quiet() -> logging.Logger:
    """A logger that discards librdkafka's log lines, which would go to standard error."""
    logger = logging.getLogger("gnomon.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def client_config(bootstrap: str) -> dict[str, Any]:
    """The configuration of every client in this package."""
    return {"bootstrap.servers": bootstrap, "client.id": "gnomon-cli", "logger": quiet()}


_CORRELATION = 0x676E6F6D
_QUESTION = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
"""ApiVersions in version 0, which every broker answers to every client: size, API, version, correlation, no client id.
"""
_ANSWER = struct.Struct(">ii")
"""The answer begins with size and correlation."""


def connect(bootstrap: str) -> AdminClient:
    """An admin client of a broker.

    Raises:
        Failure: there is none at any of the addresses.
    """
    reach(bootstrap)
    return AdminClient(client_config(bootstrap))


def reach(bootstrap: str) -> None:
    """Returns once a broker answers at one of the addresses in `bootstrap`, or may be there but has not answered yet.

    Raises:
        Failure: nothing listens there, or a program that does not speak Kafka's protocol does.
        UsageError: the text is not a list of addresses.
    """
    reasons = []
    for address in bootstrap.split(","):
        host, port = _split(address.strip())
        try:
            with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
                problem = _problem(connection, address)
            if problem is None:
                return
            reasons.append(problem)
        except OSError as error:
            reasons.append(error.strerror or str(error))
        except UnicodeError:
            reasons.append(f"{host!r} is no host name")
    raise Failure(
        f"no broker answers at {bootstrap} ({'; '.join(dict.fromkeys(reasons))}): start one with `gnomon standalone`,"
        f" or set --bootstrap-server, {BOOTSTRAP_VARIABLE} or a profile",
        Exit.UNREACHABLE,
    )


def _problem(connection: socket.socket, address: str) -> str | None:
    """Why the peer is not a broker; None for a broker, and for a peer that has not answered yet."""
    connection.settimeout(TOLD_SECONDS)
    with connection.makefile("rb") as answer:
        try:
            connection.sendall(_QUESTION)
            head = answer.read(_ANSWER.size)
        except TimeoutError:
            note(f"no answer yet from {address.strip()}: waiting, about {ANSWER_SECONDS:g} s")
            return None
    if len(head) < _ANSWER.size:
        return "the program at that address ended the connection"
    if _ANSWER.unpack(head)[1] != _CORRELATION:
        return "the program at that address does not speak Kafka's protocol"
    return None


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT_DEFAULT)
    if not (host and port.isdecimal() and 0 < int(port) <= PORT_MAX):
        raise click.UsageError(f"--bootstrap-server {address!r} is no address: give HOST:PORT")
    return host.strip("[]"), int(port)


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Within the block, an error of the broker or of librdkafka becomes the Failure to `what`."""
    try:
        yield
    except KafkaException as error:
        problem = error.args[0]
        raise kafka_failure(what, problem.code(), problem.str()) from None


def answer(future: Future[T], what: str) -> T:
    """The result of a call to an admin client.

    Raises:
        Failure: it is an error.
    """
    with kafka_errors(what):
        try:
            return future.result(FUTURE_SECONDS)
        except TimeoutError:
            raise Failure(f"cannot {what}: no answer for {FUTURE_SECONDS:g} s", Exit.UNREACHABLE) from None


def describe_topic(admin: AdminClient, name: str, what: str = "") -> Any:
    """A topic's TopicDescription; asking does not create it.

    Args:
        what: the attempt that needs the description, as the error names it; empty for the description itself.

    Raises:
        Failure: there is no such topic, or no answer.
    """
    futures = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_SECONDS)
    return answer(futures[name], what or f"describe topic {name!r}")


def check_partition(topic: str, partition: int, partitions: Collection[int]) -> None:
    """Raises Failure if a topic with these partitions lacks this one."""
    if partition not in partitions:
        raise Failure(f"topic {topic!r} has no partition {partition}: it has 0 to {len(partitions) - 1}", Exit.CONFLICT)


def partitions_of(
    admin: AdminClient, topic: str, only: Collection[int], positions: Collection[Position | None]
) -> list[int]:
    """The partitions of a topic, or `only` these, for a command that has such positions.

    Raises:
        Failure: the topic or a partition does not exist, or no answer.
        UsageError: a position is an offset, and there are several partitions.
    """
    known = [partition.id for partition in describe_topic(admin, topic).partitions]
    for partition in only:
        check_partition(topic, partition, known)
    chosen = sorted(set(only)) or known
    if len(chosen) > 1 and any(isinstance(position, AtOffset) for position in positions):
        raise click.UsageError(f"an offset counts in one partition, and {topic!r} has several: give one --partition")
    return chosen


def check_not_internal(topic: str) -> None:
    """Raises Failure for a topic that only brokers may change; a broker refuses too, mostly without a reason."""
    if topic in INTERNAL_TOPICS:
        raise Failure(
            f"topic {topic!r} is the broker's own, which keeps its state there: leave it alone", Exit.CONFLICT
        )


def topic_configs(admin: AdminClient, topic: str) -> dict[str, Any]:
    """A topic's configs by name, each with its value and source.

    Raises:
        Failure: there is no such topic, or no answer.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    future = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
    return answer(future, f"read the configs of topic {topic!r}")


def source_of(admin: AdminClient, topic: str) -> str | None:
    """The source of the shadow `topic`; None if it is not a shadow.

    Raises:
        Failure: there is no such topic, or no answer.
    """
    source = topic_configs(admin, topic).get(SHADOW_SOURCE)
    return None if source is None else str(source.value)


def from_time(milliseconds: int) -> Any:
    """Selects the first record whose timestamp is not before `milliseconds` since 1970, for `offsets`."""
    return OffsetSpec.for_timestamp(milliseconds)


def offsets(admin: AdminClient, topic: str, partitions: list[int], where: Any) -> dict[int, int]:
    """The offset at `where` (EARLIEST, LATEST, `from_time`) in each of the partitions; -1 if there is none.

    Raises:
        Failure: there is no such partition, or no answer.
    """
    asked = {TopicPartition(topic, partition): where for partition in partitions}
    futures = admin.list_offsets(asked, request_timeout=ANSWER_SECONDS)
    what = f"look up the offsets of topic {topic!r}"
    return {at.partition: answer(future, what).offset for at, future in futures.items()}


def offsets_at(admin: AdminClient, topic: str, partitions: list[int], position: Position) -> dict[int, int]:
    """The offset of a position in each of the partitions, as it is now; the end for a time after the last record.

    Raises:
        Failure: there is no such partition, or no answer.
    """
    if isinstance(position, AtOffset):
        return dict.fromkeys(partitions, position.offset)
    if not isinstance(position, AtTime):
        return offsets(admin, topic, partitions, EARLIEST if position is LogEdge.EARLIEST else LATEST)
    found = offsets(admin, topic, partitions, from_time(position.milliseconds))
    if all(offset >= 0 for offset in found.values()):
        return found
    ends = offsets(admin, topic, partitions, LATEST)
    return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}


def delete_before(admin: AdminClient, before: list[TopicPartition]) -> dict[TopicPartition, Future[Any]]:
    """Deletes the records of each partition before the offset that it is given with."""
    major, minor = metadata.version("confluent-kafka").split(".")[:2]
    if (int(major), int(minor)) < _DELETE_RECORDS_KEEPS_ITS_LIST:
        # Otherwise the list is freed while it is in use (confluent-kafka-python's pull request 2328).
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(before))
    futures: dict[TopicPartition, Future[Any]] = admin.delete_records(before, request_timeout=ANSWER_SECONDS)
    return futures
