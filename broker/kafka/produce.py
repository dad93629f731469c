"""Produce: every batch to its partition's log, one answer when all of them are durable or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connection import Exchange, KafkaConnection
from gnomon.broker.partition.entry import NO_OFFSET
from gnomon.broker.partition.partition import Produced
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.produce import (
    PartitionProduced,
    encode_produce_response,
    parse_produce,
)

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

OLDEST_SERVED = 3
"""Versions below are advertised, so that librdkafka <= 2.0 keeps compressing (KIP-896), and refused."""
ZSTD_SINCE = 7
ATTRIBUTES_AT = 22
"""Where the low byte of a batch's attributes stands."""
CODEC_MASK = 0x07
TRANSACTIONAL = 0x10
_NO_TRANSACTIONAL_ID = b"\xff\xff"


class ProduceHandler:
    """Answers the Produce requests of one broker."""

    def __init__(self, broker: Broker, flush_later: Callable[[KafkaConnection], None]) -> None:
        self._broker = broker
        self._flush_later = flush_later

    def handle(self, exchange: Exchange, frame: memoryview, body_start: int) -> None:
        """Takes one request; the answer follows when its batches are durable or refused."""
        version = exchange.api_version
        refusal = None
        if version < OLDEST_SERVED:
            body = memoryview(_NO_TRANSACTIONAL_ID + frame[body_start:])
            request = parse_produce(body, 0, OLDEST_SERVED)
            refusal = ErrorCode.UNSUPPORTED_VERSION, f"Produce version {version} is too old: {OLDEST_SERVED} and up"
        else:
            request = parse_produce(frame, body_start, version)
        if request.transactional_id is not None:
            refusal = (
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactions are not built yet: unset transactional.id",
            )
        elif request.acks not in (-1, 0, 1):
            refusal = ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: only -1 (all), 0 and 1 exist"
        count = sum(len(partitions) for _, partitions in request.topics)
        answer = _Answer(exchange, count, request.acks == 0, self._flush_later)
        for topic, partitions in request.topics:
            for index, records in partitions:
                place = answer.place(topic, index)
                if refusal is not None:
                    place.refuse(*refusal)
                else:
                    self._append(place, topic, index, records, version)
        if count == 0:
            answer.finish()

    def _append(self, place: _Place, topic: str | bytes, index: int, records: memoryview | None, version: int) -> None:
        if records is None:
            place.refuse(ErrorCode.INVALID_RECORD, "no record batch was sent for the partition")
            return
        refusal = _refusal_by_attributes(records, version)
        if refusal is not None:
            place.refuse(*refusal)
            return
        try:
            partition = self._broker.partition_of(topic, index, producing=True)
        except KafkaError as error:
            place.refuse(error.code, error.text)
            return
        self._broker.metrics.produce_bytes += len(records)
        self._broker.metrics.produce_batches += 1
        partition.append(records, place.done)


def _refusal_by_attributes(records: memoryview, version: int) -> tuple[ErrorCode, str] | None:
    """Why a batch is refused for what its attributes say, before anything else of it is looked at."""
    if len(records) <= ATTRIBUTES_AT:
        return None
    attributes = records[ATTRIBUTES_AT]
    if attributes & TRANSACTIONAL:
        return ErrorCode.INVALID_TXN_STATE, "transactions are not built yet: unset transactional.id"
    if version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_SINCE} or later (KIP-110)"
    return None


class _Place:
    """One partition's place in an answer."""

    __slots__ = ("_answer", "index", "outcome", "topic")

    def __init__(self, answer: _Answer, topic: str | bytes, index: int) -> None:
        self._answer = answer
        self.topic = topic
        self.index = index
        self.outcome: Produced | None = None

    def refuse(self, code: ErrorCode, text: str) -> None:
        self.done(Produced(code, NO_OFFSET, -1, text))

    def done(self, outcome: Produced) -> None:
        """The batch is durable or refused."""
        assert self.outcome is None, f"two outcomes for one batch of partition {self.index}"
        self.outcome = outcome
        self._answer.one_done()


class _Answer:
    """One request until all its batches have an outcome."""

    __slots__ = ("_exchange", "_flush_later", "_left", "_places", "_silent")

    def __init__(
        self, exchange: Exchange, count: int, silent: bool, flush_later: Callable[[KafkaConnection], None]
    ) -> None:
        self._exchange = exchange
        self._left = count
        self._silent = silent
        self._places: list[_Place] = []
        self._flush_later = flush_later

    def place(self, topic: str | bytes, index: int) -> _Place:
        place = _Place(self, topic, index)
        self._places.append(place)
        return place

    def one_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.finish()

    def finish(self) -> None:
        exchange = self._exchange
        if self._silent:
            self._finish_silent()
            return
        exchange.reply(
            (encode_produce_response(exchange.correlation_id, exchange.api_version, self._results()),), flush=False
        )
        self._flush_later(exchange.connection)

    def _finish_silent(self) -> None:
        """acks=0: an error is told by closing, so that the client refreshes its metadata, as Kafka does."""
        for place in self._places:
            outcome = place.outcome
            if outcome is not None and outcome.error != ErrorCode.NONE:
                self._exchange.no_reply()
                self._exchange.connection.refuse(f"produce with acks=0 failed: {outcome.error.name}: {outcome.text}")
                return
        self._exchange.no_reply()

    def _results(self) -> list[tuple[str | bytes, list[PartitionProduced]]]:
        topics: dict[str | bytes, list[PartitionProduced]] = {}
        for place in self._places:
            outcome = place.outcome
            assert outcome is not None
            topics.setdefault(place.topic, []).append(
                PartitionProduced(
                    place.index,
                    outcome.error,
                    outcome.base_offset,
                    outcome.log_append_time_ms,
                    -1 if outcome.error else 0,
                    outcome.text,
                )
            )
        return list(topics.items())
