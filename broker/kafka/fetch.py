"""Fetch: from the ledger's own memory to the socket, or a long poll until there is something.

1. An answer leaves inside the read transaction that its records live in; nothing waits while that is open.
2. A poll is answered at once when there are `min_bytes`, an error, or nothing to wait for; else at its deadline, or
   when another request is waiting behind it on its connection.
3. The first partition with records gives at least one batch whatever the limits say; from there on they hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gnomon.bookie.ledger import LocalViews
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connection import Exchange
from gnomon.broker.kafka.fetch_sessions import FetchSession, FetchSessions, Followed, TopicRef
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.partition import Partition
from gnomon.runtime.timers import Timer
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchedPartition, FetchRequest, encode_fetch_response, parse_fetch

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker


class FetchHandler:
    """Answers the Fetch requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sessions = FetchSessions(
            broker.configs.number("max.incremental.fetch.session.cache.slots"), broker.world.random("fetch-sessions")
        )

    def handle(self, exchange: Exchange, frame: memoryview, body_start: int) -> None:
        """Takes one request; the answer follows now or later."""
        request = parse_fetch(frame, body_start, exchange.api_version)
        try:
            session, followed = self._sessions.find(request, self._broker.world.clock.monotonic())
        except KafkaError as error:
            exchange.reply(encode_fetch_response(exchange.correlation_id, exchange.api_version, error.code, 0, []))
            return
        Poll(self._broker, exchange, request, session, followed).start()


class Poll:
    """One fetch request until its answer."""

    def __init__(
        self,
        broker: Broker,
        exchange: Exchange,
        request: FetchRequest,
        session: FetchSession | None,
        followed: Iterable[Followed],
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._session = session
        self._full = session is None or request.session_epoch <= 0
        self._wanted = [(item, *self._find(item)) for item in followed]
        self._bytes_max = min(
            request.max_bytes, broker.configs.number("fetch.max.bytes"), exchange.connection.answer_room()
        )
        self._timer: Timer | None = None

    def start(self) -> None:
        """Answers, or begins to wait."""
        wait_seconds = self._request.max_wait_ms / 1000
        if self._attempt(final=wait_seconds <= 0 or self._request.min_bytes <= 0 or not self._wanted):
            return
        self._exchange.cut_short = self._finish
        self._timer = self._broker.timers.call_at(self._broker.world.clock.monotonic() + wait_seconds, self._finish)
        for _, partition, _ in self._wanted:
            if partition is not None:
                partition.wait(self)

    def wake(self) -> None:
        """A partition has moved on, opened or failed."""
        if self._timer is not None and self._attempt(final=False):
            self._stop_waiting()

    def _finish(self) -> None:
        if self._timer is not None:
            self._stop_waiting()
            self._attempt(final=True)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._exchange.cut_short = None
            for _, partition, _ in self._wanted:
                if partition is not None:
                    partition.stop_waiting(self)

    def _find(self, item: Followed) -> tuple[Partition | None, ErrorCode]:
        try:
            return self._broker.partition_of(item.topic, item.spec.partition), ErrorCode.NONE
        except KafkaError as error:
            return None, error.code

    def _attempt(self, *, final: bool) -> bool:
        """Answers when there is enough or nothing more to wait for."""
        if not final and not self._something():
            return False
        with LocalViews() as views:
            results: list[tuple[Followed, FetchedPartition]] = []
            total, failed = 0, False
            for item, partition, error in self._wanted:
                fetched, size = self._read(item, partition, error, views, self._bytes_max - total, total == 0)
                opening = partition is not None and partition.log is None and partition.failure is None
                failed |= fetched.error_code != 0 and not opening
                total += size
                results.append((item, fetched))
            if not final and not failed and total < self._request.min_bytes:
                return False
            self._answer(results, total)
        return True

    def _something(self) -> bool:
        """Whether reading could give an error or a record; the cheap look before a read transaction."""
        for item, partition, _ in self._wanted:
            if partition is None or partition.failure is not None:
                return True
            log = partition.log
            if log is not None and (
                item.spec.fetch_offset != log.high_watermark or partition.check_epoch(item.spec.current_leader_epoch)
            ):
                return True
        return False

    def _read(
        self,
        item: Followed,
        partition: Partition | None,
        error: ErrorCode,
        views: LocalViews,
        bytes_left: int,
        first: bool,
    ) -> tuple[FetchedPartition, int]:
        spec = item.spec
        if partition is None:
            return FetchedPartition(spec.partition, error, -1, -1, -1), 0
        log = partition.open_log()
        if log is None:
            # Still opening when the poll had to end: nothing is known of it, so the client shall ask again.
            code = partition.failure or ErrorCode.NOT_LEADER_OR_FOLLOWER
            return FetchedPartition(spec.partition, code, -1, -1, -1), 0
        code = partition.check_epoch(spec.current_leader_epoch)
        if code == ErrorCode.NONE and not log.start_offset <= spec.fetch_offset <= log.next_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code != ErrorCode.NONE:
            return FetchedPartition(spec.partition, code, -1, -1, -1), 0
        chunks: list[memoryview] = []
        size = 0
        if spec.fetch_offset < log.high_watermark and (bytes_left > 0 or first):
            limit = min(spec.partition_max_bytes, bytes_left)
            chunks, size, code = partition.read(Offset(spec.fetch_offset), limit, first, views)
        watermark = log.high_watermark
        return FetchedPartition(spec.partition, code, watermark, watermark, log.start_offset, records=chunks), size

    def _answer(self, results: list[tuple[Followed, FetchedPartition]], size: int) -> None:
        session = self._session
        topics: dict[TopicRef, list[FetchedPartition]] = {}
        for item, fetched in results:
            if self._full or self._news(item, fetched):
                topics.setdefault(item.topic, []).append(fetched)
            if session is not None:
                item.high_watermark, item.log_start_offset = fetched.high_watermark, fetched.log_start_offset
                if fetched.records:
                    session.served(item)
        metrics = self._broker.metrics
        metrics.fetch_bytes += size
        metrics.fetch_batches += sum(len(fetched.records) for _, fetched in results)
        self._exchange.reply(
            encode_fetch_response(
                self._exchange.correlation_id,
                self._exchange.api_version,
                ErrorCode.NONE,
                session.id if session is not None else 0,
                list(topics.items()),
            )
        )

    @staticmethod
    def _news(item: Followed, fetched: FetchedPartition) -> bool:
        return bool(
            fetched.records
            or fetched.error_code
            or fetched.high_watermark != item.high_watermark
            or fetched.log_start_offset != item.log_start_offset
        )
