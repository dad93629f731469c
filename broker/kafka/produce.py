"""Produce: appends every batch to its partition's log, and answers once all of them are durable or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import trio

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation, Resource, ResourceType
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connections.exchange import Exchange, ExchangeConnection
from gnomon.broker.kafka.connections.refusal_log import TRANSACTIONS, RefusalLog
from gnomon.broker.kafka.produce_route import ACKS_ALL, ProduceRoutes, refusal_by_attributes
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.broker.partition.unpacking.batch_client import BatchClient
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.loop.turn_watch import work_for
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import OUT_OF_MEMORY, Clock
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.produce import (
    PartitionProduced,
    ProduceRequest,
    encode_produce_response,
    parse_produce,
)

OLDEST_SERVED = 3
"""Older versions are refused; they are advertised so that librdkafka <= 2.0 keeps compressing (KIP-896)."""
PARTITIONS_PER_TURN = 250
"""Partitions of a request that are handled in one turn of the event loop: their appends take some 4 ms."""
WEIGHT_BYTES = 32 << 10
"""The bytes of a batch that count as one partition more, because they are checked and copied."""
Batch: TypeAlias = tuple[tuple[ErrorCode, str] | None, str | bytes, int, memoryview | None]
"""A refusal, a topic's name or id, the number of a partition, and the records for it."""
_NO_TRANSACTIONAL_ID = b"\xff\xff"


class ProduceHandler:
    """Answers the Produce requests of one broker."""

    def __init__(
        self,
        routes: ProduceRoutes,
        refused: RefusedBatches,
        access: Access[ApiKey],
        clock: Clock,
        refusals: RefusalLog,
    ) -> None:
        """Answers with the outcome of each batch; `refused` remembers the batches that other brokers have to take."""
        self._routes = routes
        self._refused = refused
        self._access = access
        self._clock = clock
        self._refusals = refusals
        self._flush_later = routes.flush_later
        self._tasks = OwnTasks()

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
            refusal = self._transactional(exchange, request.transactional_id)
        elif request.acks not in (ACKS_ALL, 0, 1):
            refusal = ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: only -1 (all), 0 and 1 exist"
        if refusal is None:
            exchange.connection.shortcut = self._routes.route(exchange, frame, request)
        answer = PendingProduce(exchange, request, self._flush_later)
        if answer.slots + len(frame) // WEIGHT_BYTES <= PARTITIONS_PER_TURN:
            for slot, batch in enumerate(self._batches(exchange, request, refusal)):
                self._take(answer, slot, batch)
            if not answer.slots:
                answer.finish()
        else:
            # Batches of later requests are appended after these, and the frame stays in the receive buffer until then.
            exchange.connection.hold(exchange)
            self._tasks.start_soon(work_for, exchange, self._take_long, exchange, answer, request, refusal)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of long requests, until it is cancelled."""
        await self._tasks.run(task_status=task_status)

    async def _take_long(
        self,
        exchange: Exchange,
        answer: PendingProduce,
        request: ProduceRequest,
        refusal: tuple[ErrorCode, str] | None,
    ) -> None:
        batches = enumerate(self._batches(exchange, request, refusal))
        try:
            async for slot, batch in paced(batches, PARTITIONS_PER_TURN, self._clock, _weight):
                self._take(answer, slot, batch)
        except MemoryError as error:
            exchange.connection.refuse(str(error) or OUT_OF_MEMORY)
        exchange.connection.flush()  # no turn of a store or of the network ends here

    def _batches(
        self, exchange: Exchange, request: ProduceRequest, refusal: tuple[ErrorCode, str] | None
    ) -> Iterator[Batch]:
        for topic, partitions in request.topics:
            denied = refusal or self._routes.refusal(exchange, topic)
            for index, records in partitions:
                yield denied, topic, index, records

    def _take(self, answer: PendingProduce, slot: int, batch: Batch) -> None:
        denied, topic, index, records = batch
        if denied is not None:
            answer.refuse(slot, *denied)
        else:
            self._append(answer, slot, topic, index, records)

    def _transactional(self, exchange: Exchange, transactional_id: str) -> tuple[ErrorCode, str]:
        """The refusal of a transactional request: transactions are not built."""
        resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        text = TRANSACTIONS
        if self._access.allows(ApiKey.PRODUCE, exchange.session(), Operation.WRITE, resource):
            self._refusals.refused(exchange, TRANSACTIONS)
        else:
            text = f"not authorized for WRITE on transactional id '{transactional_id}'"
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text

    def _append(
        self, answer: PendingProduce, slot: int, topic: str | bytes, index: int, records: memoryview | None
    ) -> None:
        if records is None:
            answer.refuse(slot, ErrorCode.INVALID_RECORD, "no record batch was sent for the partition")
            return
        refusal = refusal_by_attributes(records, answer.version)
        if refusal is not None:
            answer.refuse(slot, *refusal)
            return
        try:
            partition = self._routes.routes.to_produce(topic, index)
        except KafkaError as error:
            self._refused.of(topic, index).refused_batch(records, self._clock.wall_ms())
            answer.refuse(slot, error.code, error.text)
            return
        metrics = self._routes.metrics
        metrics.produce_bytes += len(records)
        metrics.produce_batches += 1
        if metrics.traffic is not None:
            metrics.traffic.received(topic, records)
        partition.append(records, answer, slot, by_all=answer.by_all)


def _weight(slot_and_batch: tuple[int, Batch]) -> int:
    _, (_, _, _, records) = slot_and_batch
    return 1 + len(records or b"") // WEIGHT_BYTES


class PendingProduce:
    """One request until all its batches have an outcome; its slots are its partitions in the order it names them."""

    __slots__ = ("_exchange", "_flush_later", "_left", "_outcomes", "_places", "_silent", "by_all", "slots", "version")

    def __init__(
        self, exchange: Exchange, request: ProduceRequest, flush_later: Callable[[ExchangeConnection], None]
    ) -> None:
        self._exchange = exchange
        self.version = exchange.api_version
        # Indexes only: the records are views of a receive buffer that will be used again.
        self._places = [(topic, [index for index, _ in partitions]) for topic, partitions in request.topics]
        self._left = len(self._places[0][1]) if len(self._places) == 1 else sum(len(some) for _, some in self._places)
        self.slots = self._left
        self._outcomes: list[Produced | None] = [None] * self._left
        self._silent = exchange.silent = request.acks == 0
        self.by_all = request.acks == ACKS_ALL
        self._flush_later = flush_later

    def refuse(self, slot: int, code: ErrorCode, text: str) -> None:
        """The batch is not appended."""
        self.appended(slot, Produced.refusal(code, text))

    def client_of(self, slot: Any) -> BatchClient:
        """See `AppendCallback.client_of`."""
        return self._exchange

    def appended(self, slot: Any, outcome: Produced) -> None:
        """See `AppendCallback.appended`."""
        assert self._outcomes[slot] is None, f"two outcomes for batch {slot} of one request"
        self._outcomes[slot] = outcome
        self._left -= 1
        if self._left == 0:
            self.finish()

    def finish(self) -> None:
        """All batches are durable or refused: answers."""
        exchange = self._exchange
        if self._silent:
            self._finish_silent()
        else:
            frame = encode_produce_response(exchange.correlation_id, self.version, self._results())
            exchange.reply((frame,), flush=False)
        self._flush_later(exchange.connection)

    def _finish_silent(self) -> None:
        """acks=0: an error closes the connection, so that the client refreshes its metadata, as in Kafka."""
        self._exchange.no_reply()
        for outcome in self._outcomes:
            if outcome is not None and outcome.error != ErrorCode.NONE:
                self._exchange.connection.refuse(f"produce with acks=0 failed: {outcome.error.name}: {outcome.text}")
                return

    def _results(self) -> list[tuple[str | bytes, list[PartitionProduced]]]:
        outcomes = iter(self._outcomes)
        return [
            (topic, [PartitionProduced(index, *(next(outcomes) or ())) for index in indexes])
            for topic, indexes in self._places
        ]
