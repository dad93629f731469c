"""A client library of another language, through a program that does one command after the other.

Each command is a line of JSON, and so is its result:

    {"do": "producer", "id", "codec", "idempotent", "linger_ms"}    null; an option that is null is not set
    {"do": "send", "id", "records"}                                 for each record its offset, or {"code", "text"}
    {"do": "reader", "id", "topic", "partition"}                    null; it reads from the first record on
    {"do": "poll", "id", "ms"}                                      records
    {"do": "close", "id"}                                           null, for a producer or a reader

A record that is sent has topic, partition, key, value, headers and timestamp_ms, one that is read is a list of
partition, offset, key, value, headers and timestamp. A text has a letter for each byte (Latin-1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from programs import Program

from families.family import Headers, Record, offsets

JAVA, FRANZ_GO, KAFKAJS = "Kafka's Java client", "franz-go", "kafkajs"


class CommandFailed(Exception):
    """An error that the library raised: Kafka's code, -1 without one, and the library's text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class CommandedFamily:
    """A library in a program; it has the calls of `Family` for producers and readers."""

    def __init__(self, name: str, codecs: set[str], command: Sequence[str]) -> None:
        self.name = name
        self._codecs = codecs
        self._program = Program(command)
        self._opened = 0

    def run(self, do: str, number: int, **arguments: Any) -> Any:
        """The result of a command."""
        return self._program.step(json.dumps({"do": do, "id": number, **arguments}))

    def _open(self, do: str, **arguments: Any) -> int:
        self._opened += 1
        self.run(do, self._opened, **arguments)
        return self._opened

    def codecs(self) -> set[str]:
        return self._codecs

    def producer(
        self,
        *,
        codec: str | None = None,
        idempotent: bool | None = None,
        linger_ms: int | None = None,
        kafka_partitioner: bool = False,
    ) -> CommandedProducer:
        number = self._open("producer", codec=codec, idempotent=idempotent, linger_ms=linger_ms)
        return CommandedProducer(self, number)

    def reader(self, topic: str, partition: int, start: str) -> CommandedReader:
        assert start == "earliest"
        return CommandedReader(self, self._open("reader", topic=topic, partition=partition))

    def code(self, error: BaseException) -> int:
        assert isinstance(error, CommandFailed), error
        return error.code

    def close(self) -> None:
        self._program.__exit__()


class CommandedProducer:
    """Sends at the call of `answers`, all at once."""

    def __init__(self, family: CommandedFamily, number: int) -> None:
        self._family = family
        self._number = number
        self._records: list[dict[str, object]] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        record = {"topic": topic, "partition": partition, "key": _text(key), "value": _text(value)}
        given = [(name, _text(text)) for name, text in headers]
        self._records.append({**record, "headers": given, "timestamp_ms": timestamp_ms})

    def answers(self) -> list[int | BaseException]:
        records, self._records = self._records, []
        answers = self._family.run("send", self._number, records=records)
        return [each if isinstance(each, int) else CommandFailed(each["code"], each["text"]) for each in answers]

    def flush(self) -> list[int]:
        return offsets(self.answers())

    def close(self) -> None:
        self._family.run("close", self._number)


class CommandedReader:
    """Reads one partition."""

    def __init__(self, family: CommandedFamily, number: int) -> None:
        self._family = family
        self._number = number

    def poll(self, seconds: float) -> list[Record]:
        polled = self._family.run("poll", self._number, ms=int(seconds * 1000))
        return [
            Record(
                partition, offset, _bytes(key), _bytes(value), tuple((name, _bytes(text)) for name, text in headers), ms
            )
            for partition, offset, key, value, headers, ms in polled
        ]

    def close(self) -> None:
        self._family.run("close", self._number)


def _text(given: bytes | None) -> str | None:
    return None if given is None else given.decode("latin-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
