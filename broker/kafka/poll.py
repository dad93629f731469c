"""One poll: sends records from the ledger's own memory to the socket, or waits until there are some.

1. An answer either is passed to the socket during the read transaction that its records belong to, or is a copy. No
   task waits while such a transaction is open.
2. A poll is answered as soon as one of these holds: it has `min_bytes` of records, it has an error, there is nothing to
   wait for, or more records follow beyond its limits or in the next segment. Otherwise it is answered at its deadline,
   or once another request has arrived on its connection and the partitions of the poll are open.
3. The first partition with records gives at least one batch, even beyond the limits, unless the peer has to receive
   earlier replies first. All other batches are within the limits.
4. As long as the log is unchanged, equal requests get equal bytes, except for the correlation id.
5. If the next records of a partition are not in memory, and no earlier partition of the poll has records in memory, the
   poll waits until bookies have sent them, also beyond its deadline. If an earlier partition has some, this partition
   is answered without records, and its entries are loaded for the next poll.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from gnomon.bookie.ledgers.catalog import LocalViews, NotInMemory, Reading
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.fetch_sessions import FetchSession, Followed, TopicRef
from gnomon.broker.partition.readable import Readable
from gnomon.log.entry import Offset
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import OUT_OF_MEMORY, Buffer
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchRequest
from gnomon.wire.kafka.fetch_response import FetchedPartition, encode_fetch_body, fetch_prefix

Wanted = tuple[Followed, Readable | None, ErrorCode]
"""A partition of a request: the partition that serves it, or an error."""
SMALL_BYTES_MAX = 64 << 10
RECENT_MAX = 64


class PollAnswer(NamedTuple):
    """A response without its correlation id: equal requests can share it."""

    body_bytes: int
    chunks: list[Buffer]
    records_bytes: int
    batches: int
    by_topic: Sequence[tuple[TopicRef, int]]
    """The bytes of records by topic, if the metrics have them."""


class RecentAnswers:
    """The last small answers, copied out of the ledger's memory, by all that they depend on; at most 4 MiB.

    Many consumers wait for the same next record: sharing the answer, with `fetch_route`, takes 12 us of Python instead
    of 42.
    """

    def __init__(self) -> None:
        self._answers: dict[Hashable, PollAnswer] = {}
        self.get = self._answers.get

    def put(self, key: Hashable, answer: PollAnswer) -> None:
        """Adds an answer if it is small; the oldest one is dropped if there are too many."""
        if answer.body_bytes <= SMALL_BYTES_MAX:
            if len(self._answers) >= RECENT_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = answer._replace(chunks=[b"".join(answer.chunks)])


class Polls:
    """The resources that all polls of a broker share."""

    def __init__(self, timers: Timers, metrics: Metrics) -> None:
        self.timers = timers
        self.metrics = metrics
        self.recent = RecentAnswers()


class Poll:
    """One fetch request until its answer."""

    __slots__ = (
        "_bytes_max",
        "_exchange",
        "_hurried",
        "_polls",
        "_reading",
        "_request",
        "_session",
        "_timer",
        "_wanted",
    )

    def __init__(
        self,
        polls: Polls,
        exchange: Exchange,
        request: FetchRequest,
        session: FetchSession | None,
        wanted: Sequence[Wanted],
        bytes_max: int,
    ) -> None:
        """A poll of `wanted`, each with its partition or an error; at most `bytes_max` of records in all."""
        self._polls = polls
        self._exchange = exchange
        self._request = request
        self._session = session
        self._wanted = wanted
        self._bytes_max = bytes_max
        self._timer: Timer | None = None
        self._hurried = False
        """Whether another request has arrived after this one."""
        self._reading: Reading | None = None
        """The fetch of entries from bookies; None without one."""

    def start(self) -> None:
        """Answers, or begins to wait."""
        wait_seconds = self._request.max_wait_ms / 1000
        if self._attempt(final=wait_seconds <= 0 or self._request.min_bytes <= 0 or not self._wanted):
            return
        exchange = self._exchange
        exchange.cut_short = self._cut_short
        self._timer = self._polls.timers.call_at(exchange.started + wait_seconds, self._finish)
        for _, partition, _ in self._wanted:
            if partition is not None:
                partition.wait(self)

    def wake(self) -> None:
        """See `Waiter.wake`."""
        if self._timer is not None and self._attempt(final=self._hurried and not self._opening()):
            self._stop_waiting()

    def _cut_short(self) -> None:
        if self._opening() and not self._exchange.connection.closed_by_peer:
            self._hurried = True  # an error would cost the client more than the moment that opening takes
        else:
            self._finish()

    def _opening(self) -> bool:
        return any(partition is not None and is_opening(partition) for _, partition, _ in self._wanted)

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

    def _attempt(self, *, final: bool) -> bool:
        """Answers if there is enough, or nothing more to wait for; returns whether it has answered."""
        if not final and not self._something():
            return False
        if self._reading is not None and self._reading.waiting:
            return False
        self._bytes_max = min(self._bytes_max, self._exchange.connection.answer_room())
        key = self._key()
        answer = self._polls.recent.get(key) if key is not None else None
        if answer is not None:
            self._send(answer)
            return True
        try:
            return self._attempt_now(key, final=final)
        except MemoryError as error:
            self._refuse(error)
            return True

    def _attempt_now(self, key: Hashable, *, final: bool) -> bool:
        with LocalViews() as views:
            results: list[tuple[Followed, FetchedPartition]] = []
            total, failed, held = 0, False, False
            for item, partition, error in self._wanted:
                first = total == 0 and self._bytes_max >= 0
                try:
                    fetched, size = self._read(item, partition, error, views, self._bytes_max - total, first)
                except NotInMemory as missing:
                    self._load(missing)
                    held |= total == 0
                    fetched, size = left_out(item, partition), 0
                opening = partition is not None and is_opening(partition)
                failed |= fetched.error_code != 0 and not opening
                total += size
                results.append((item, fetched))
            enough = total >= self._request.min_bytes or any(goes_on(item, fetched) for item, fetched in results)
            if held or (not final and not failed and not enough):
                return False
            topics: dict[TopicRef, list[FetchedPartition]] = {}
            self._name(results, topics)
            answer = self._encoded(topics, total)
            if key is not None and enough and not failed:
                self._polls.recent.put(key, answer)
            self._send(answer)
        return True

    def _key(self) -> Hashable:
        """All that the answer depends on; None if it is not shared, for several partitions or with a session."""
        if self._session is not None or len(self._wanted) != 1:
            return None
        item, partition, _ = self._wanted[0]
        log = partition.log if partition is not None else None
        if log is None:
            return None
        return (
            log.high_watermark,
            item.spec,
            partition,
            item.topic,
            log.epoch,
            log.start_offset,
            self._exchange.api_version,
            self._request.min_bytes,
            self._bytes_max,
        )

    def _something(self) -> bool:
        """Whether reading could give an error or a record; the cheap check before a read transaction."""
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
        partition: Readable | None,
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
            # The partition is still opening at the end of the poll: the error makes the client ask again.
            code = partition.failure or ErrorCode.NOT_LEADER_OR_FOLLOWER
            return FetchedPartition(spec.partition, code, -1, -1, -1), 0
        code = partition.check_epoch(spec.current_leader_epoch)
        if code == ErrorCode.NONE and not log.start_offset <= spec.fetch_offset <= log.next_offset:
            before = spec.fetch_offset < log.start_offset
            code = ErrorCode.OFFSET_OUT_OF_RANGE if before else partition.beyond_end(Offset(spec.fetch_offset))
        if code != ErrorCode.NONE:
            return FetchedPartition(spec.partition, code, -1, -1, -1), 0
        chunks: list[memoryview] = []
        size = 0
        if spec.fetch_offset < log.high_watermark and (bytes_left > 0 or first):
            limit = min(spec.partition_max_bytes, bytes_left)
            chunks, size, code = partition.read(Offset(spec.fetch_offset), limit, first, views)
        watermark = log.high_watermark
        return FetchedPartition(spec.partition, code, watermark, watermark, log.start_offset, records=chunks), size

    def _name(
        self, results: Iterable[tuple[Followed, FetchedPartition]], topics: dict[TopicRef, list[FetchedPartition]]
    ) -> None:
        """Adds the results that the answer names to `topics`; the session notes what its client will have."""
        session = self._session
        full = session is None or self._request.session_epoch <= 0
        for item, fetched in results:
            if full or self._news(item, fetched):
                topics.setdefault(item.topic, []).append(fetched)
            if session is not None:
                item.high_watermark, item.log_start_offset = fetched.high_watermark, fetched.log_start_offset
                if fetched.records:
                    session.served(item)

    def _encoded(self, topics: dict[TopicRef, list[FetchedPartition]], size: int) -> PollAnswer:
        named = list(topics.items())
        session_id = self._session.id if self._session is not None else 0
        body_bytes, chunks = encode_fetch_body(self._exchange.api_version, ErrorCode.NONE, session_id, named)
        batches = sum(len(fetched.records) for _, partitions in named for fetched in partitions)
        by_topic: list[tuple[TopicRef, int]] = []
        if self._polls.metrics.traffic is not None:
            by_topic = [(ref, sum(len(chunk) for one in some for chunk in one.records)) for ref, some in named]
        return PollAnswer(body_bytes, chunks, size, batches, by_topic)

    def _send(self, answer: PollAnswer) -> None:
        exchange, metrics = self._exchange, self._polls.metrics
        metrics.fetch_bytes += answer.records_bytes
        metrics.fetch_batches += answer.batches
        if metrics.traffic is not None:
            for topic, count in answer.by_topic:
                metrics.traffic.sent(topic, count)
        prefix = fetch_prefix(answer.body_bytes, exchange.correlation_id, exchange.api_version)
        exchange.reply([prefix, *answer.chunks])
        self._close_reading()

    def _refuse(self, error: MemoryError) -> None:
        """There is no memory for the answer: ends the connection."""
        self._exchange.connection.refuse(str(error) or OUT_OF_MEMORY)
        self._close_reading()

    def _close_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _load(self, missing: NotInMemory) -> None:
        if self._reading is None:
            self._reading = Reading()
        self._reading.load(missing, self._loaded)

    def _loaded(self) -> None:
        if self._reading is None or self._reading.waiting:
            return  # the poll was answered, or more entries have to arrive
        final = self._timer is None or (self._hurried and not self._opening())
        if self._attempt(final=final):
            self._stop_waiting()

    @staticmethod
    def _news(item: Followed, fetched: FetchedPartition) -> bool:
        return bool(
            fetched.records
            or fetched.error_code
            or fetched.high_watermark != item.high_watermark
            or fetched.log_start_offset != item.log_start_offset
        )


def is_opening(partition: Readable) -> bool:
    """Whether a partition is being opened: it may have records soon."""
    return partition.log is None and partition.failure is None


def left_out(item: Followed, partition: Readable | None) -> FetchedPartition:
    """The answer for a partition whose records are not in memory: no records."""
    log = partition.log if partition is not None else None
    assert log is not None, "a partition was read that is not open"
    watermark = log.high_watermark
    return FetchedPartition(item.spec.partition, ErrorCode.NONE, watermark, watermark, log.start_offset)


def goes_on(item: Followed, fetched: FetchedPartition) -> bool:
    """Whether more records follow those that were read: the segment ended, or the next batch is beyond the limits.

    Waiting could add nothing to this partition's answer. Kafka too answers if an older segment is read (DelayedFetch).
    """
    if fetched.error_code:
        return False
    reached = parse_batch(memoryview(fetched.records[-1])).next_offset if fetched.records else item.spec.fetch_offset
    return reached < fetched.high_watermark
