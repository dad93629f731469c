"""The state of one partition's log: decides each append, and knows the durable and the kept records. Pure.

1. start_offset <= high_watermark <= next_offset. Each offset below next_offset is assigned once.
2. The high watermark is the end of the durable prefix. It moves forward in log order, entry by entry, and never back.
3. No record at or above the high watermark is ever shown to a reader or named in a successful answer.
4. Each append is decided as if all earlier appends succeed. When one fails, the whole state is discarded, and rebuilt
   from the ledger before the next append, so a failed append leaves no trace in the log.
5. A repeated batch is answered with the offset of its first copy, and only after that copy is below the high watermark.
6. Leader epochs never decrease along the log.
7. The terms of an append (`terms`) are judged by the last record and the fencing token that were given out, durable or
   not. A snapshot is no record. The SN stays known when the record is deleted.
8. Transaction ids never fall along the log. Each entry header has the last one (`log.entry`), so nothing is replayed to
   know it. A fencing token is part of the snapshots, and replayed with them.
9. The batch of an operation on the view (`log_view`) is stored as the broker made it: it has no terms, and it is not
   recompressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.broker.partition.conditions.marks import NO_MARKS, marks_at_once
from gnomon.broker.partition.conditions.terms import LogEnd, Terms
from gnomon.broker.partition.log_view import LogView
from gnomon.broker.partition.producers import Duplicate, Producers
from gnomon.broker.partition.unpacking.recoding import recoded_at_once
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import (
    HEADER_BYTES,
    NO_ABORT,
    NO_OFFSET,
    NO_TIMESTAMP,
    NO_TRANSACTION,
    TRANSACTION_HEADER_BYTES,
    EntryHeader,
    EntryKind,
    LeaderEpoch,
    Offset,
    pack_header,
    pack_transaction_header,
)
from gnomon.log.sn import EMPTY, SN
from gnomon.wire.kafka.batch import (
    PREFIX_BYTES,
    BatchHeader,
    BatchRejected,
    check_produced,
    parse_batch,
    patched_prefix,
    with_log_append_time,
)
from gnomon.wire.kafka.errors import ErrorCode

SNAPSHOT_ENTRIES_MIN = 4096
"""Minimum entries between two producer snapshots: replaying this many headers at opening takes some 20 ms."""
SNAPSHOT_ENTRIES_PER_PRODUCER = 8
SNAPSHOT_BYTES_MIN = 4 << 20
"""After this many bytes of batches a snapshot comes sooner: an opening reads them from other machines in some 20 ms."""
SNAPSHOT_BYTES_PER_PRODUCER = 8 << 10
"""Some fifty times the size of one producer in a snapshot."""

OVERRUN_BYTES_MAX = 4 << 30
"""The bytes by which a segment may exceed its size while it cannot roll: some minutes of the fastest partition.
Retention drops whole segments, so up to this many bytes may stay on the disk for too long."""


_HEADER_EXTRA = TRANSACTION_HEADER_BYTES - HEADER_BYTES


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The topic's settings for its log; sizes in bytes, times in milliseconds, -1 = no limit."""

    batch_bytes_max: int = 1_048_588
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    retention_bytes: int = -1
    retention_ms: int = 7 * 86_400_000
    log_append_time: bool = False
    codec: int | None = None
    """The codec of all records; None keeps the producer's choice."""
    timestamp_before_ms_max: int = (1 << 63) - 1
    timestamp_after_ms_max: int = 3_600_000
    producer_expiry_ms: int = 86_400_000
    held_by_subscriptions: bool = True
    """Whether retention waits for durable subscriptions."""
    backlog_bytes_max: int = -1
    backlog_ms_max: int = -1
    backlog_drops: bool = False
    """Whether the oldest records are dropped when a backlog is too large; otherwise new records are refused."""
    enough_copies: bool = True
    """Whether an acknowledged record has as many copies as the topic requires for acks=all."""
    conditional: bool = False
    """Whether the headers of records may have terms."""


BEHIND_REFUSED = "a batch of this producer was refused before this one: repeat both in their order"

Append = tuple[Sequence[bytes | memoryview], Offset, int]
"""A batch to write: the entry's payload, its base offset, and its log append time in milliseconds (-1 if the records
keep the producer's timestamps). A plain tuple, since one is made per batch."""


class PartitionLog:
    """The state of the log of one partition under one leader epoch; times are wall-clock milliseconds."""

    def __init__(
        self, epoch: LeaderEpoch, start_offset: Offset, next_offset: Offset, settings: PartitionSettings
    ) -> None:
        self.epoch = epoch
        self.settings = settings
        self.start_offset = start_offset
        self.next_offset = next_offset
        self.high_watermark = next_offset
        self.producers = Producers()
        self.view: LogView | None = None
        """The view of the records that follows the appends, if the topic has one."""
        self.refusal: str | None = None
        """Why new batches are refused at the moment; repeats of batches in the log are still answered."""
        self._recorded = EMPTY if next_offset == 0 else SN(sequence_id=next_offset - 1, transaction_id=-1)
        """The SN of the last record that was there at the opening; a later one is known by its entry."""
        self._last_segment = self._last_base = NO_OFFSET
        self._last_entry = -1
        """The place of the last record that was appended since the opening; -1 if none was."""
        self._sn: SN | None = None
        """`sn`, once it was asked for."""
        self._transaction_id = NO_TRANSACTION
        """The last transaction id that was given out."""
        self._header_extra = 0
        """The bytes by which an entry's header is longer for it."""
        self._token = b""
        self.begin_segment()

    def begin_segment(self) -> None:
        """The next entry is the first of a new ledger: it must be a snapshot if any producer or a token is known."""
        self._segment = self.next_offset
        self.segment_max_timestamp = NO_TIMESTAMP
        self.segment_bytes = 0
        """The bytes of the segment's record batches, as Kafka counts them for `segment.bytes` and `retention.bytes`,
        and those of transaction ids in headers, so that an opening finds the same number."""
        self._snapshots_bytes = 0
        self._untimed_append_ms = NO_TIMESTAMP
        self.segment_first_append_ms: int | None = None
        self._replay_from = 0
        self._entries_since_snapshot = self._bytes_since_snapshot = 0
        self._bare = True

    def restore(
        self, header: EntryHeader, entry: int, payload_bytes: int, first_append_ms: int | None, now_ms: int
    ) -> None:
        """Continues after the segment's last entry; called at the end of an opening, after the replay.

        If no snapshot was replayed (no producer is known), the segment's snapshots count among its bytes. They are a
        few bytes each, except those written before the last producer expired.

        Args:
            header: of that entry.
            entry: its id.
            payload_bytes: of all entries of the ledger. It may be too small, down to 0, if the last confirmed entry
                could not be read when the ledger was claimed (`bookie/ledgers/recovery.py`); the segment then counts as
                empty.
            first_append_ms: when the segment began, None if it has no batch.
            now_ms: used as the time of the last append of a record without timestamp, which no entry stores.
        """
        self.next_offset = self.high_watermark = header.next_offset
        self.segment_max_timestamp = header.max_timestamp
        self.segment_bytes = max(0, payload_bytes - HEADER_BYTES * (entry + 1) - self._snapshots_bytes)
        self.segment_first_append_ms = first_append_ms
        self._untimed_append_ms = now_ms
        self._replay_from = header.replay_from
        self._set_transaction_id(header.transaction_id)
        self._bare = False

    def replay(self, header: EntryHeader, body: memoryview, now_ms: int) -> None:
        """Applies one stored entry to the producer states.

        The producer counts as used now: the timestamps of its records are the application's.
        """
        if header.kind == EntryKind.PRODUCERS:
            earlier_bytes, self._token = self.producers.restore_snapshot(body)
            self._snapshots_bytes = earlier_bytes + len(body) + (_HEADER_EXTRA if header.transaction_id >= 0 else 0)
            self._entries_since_snapshot = self._bytes_since_snapshot = 0
            return
        self._entries_since_snapshot += 1
        self._bytes_since_snapshot += len(body)
        batch = parse_batch(body)
        if batch.producer_id >= 0:
            self._remember(batch, header.base_offset, now_ms, batch.max_timestamp)

    def snapshot_due(self) -> bool:
        """Whether the next entry should be a producer snapshot, so that a replay stays short."""
        if self._bare:
            return len(self.producers) > 0 or bool(self._token)
        entries, size_bytes = self._entries_since_snapshot, self._bytes_since_snapshot
        if entries < SNAPSHOT_ENTRIES_MIN and size_bytes < SNAPSHOT_BYTES_MIN:
            return False
        known = max(len(self.producers), len(self._token) and 1)
        if entries >= max(SNAPSHOT_ENTRIES_MIN, SNAPSHOT_ENTRIES_PER_PRODUCER * known):
            return True
        return known > 0 and size_bytes >= max(SNAPSHOT_BYTES_MIN, SNAPSHOT_BYTES_PER_PRODUCER * known)

    def snapshot(self, entry: int) -> Sequence[bytes | memoryview]:
        """The payload of a snapshot, which is written next as `entry`."""
        self._replay_from = entry
        self._entries_since_snapshot = self._bytes_since_snapshot = 0
        self._bare = False
        body = self.producers.encode_snapshot(self._snapshots_bytes, self._token)
        self._snapshots_bytes += len(body) + self._header_extra
        return (self._header(EntryKind.PRODUCERS, self.next_offset, self.next_offset), body)

    def append(self, view: memoryview, now_ms: int, entry: int, terms: Terms | None = None) -> Append | Duplicate:
        """Decides about one produced batch; `entry` is the id of the ledger entry that would hold it.

        Raises:
            BatchRejected: with the Kafka error and the reason.
            TermsRefused: its terms do not hold.
            TakesLong: it has to be recompressed first (`recoding`).
        """
        settings = self.settings
        batch = check_produced(view, settings.batch_bytes_max)
        repeat = self._first_copy(batch, now_ms, is_native=terms is not None and not terms.of_records)
        if repeat is not None:
            return repeat
        if self.refusal is not None:
            raise BatchRejected(ErrorCode.POLICY_VIOLATION, self.refusal)
        transaction_id = None
        is_own = terms is not None and terms.operation is not None
        if settings.conditional and not is_own and (terms is None or terms.marks is None):
            marks = marks_at_once(view, batch)
            if marks is not NO_MARKS or terms is not None:
                terms = terms or Terms(of_records=True)
                terms.marks = marks
        if terms is not None and terms.are_any:
            terms.judge(self.end)
            if terms.marks is not None:
                transaction_id = terms.marks.last_transaction_id
        changes = None
        if self.view is not None:
            changes = None if terms is None else terms.changes
            if changes is None:
                changes = self.view.changes_at_once(view, batch)
        if settings.codec is not None and batch.compression != settings.codec and not is_own:
            view = recoded_at_once(view, settings.codec, settings.batch_bytes_max)
            batch = parse_batch(view)
        append_time_ms = NO_TIMESTAMP
        timestamp = batch.max_timestamp
        if settings.log_append_time:
            view = memoryview(with_log_append_time(view, now_ms))
            append_time_ms = timestamp = now_ms
        else:
            self._check_timestamp(batch, now_ms)
        base_offset = self.next_offset
        self.next_offset = Offset(base_offset + batch.records_count)
        if transaction_id is not None:
            self._set_transaction_id(transaction_id)
        self._last_segment, self._last_entry, self._last_base, self._sn = self._segment, entry, base_offset, None
        if batch.producer_id >= 0:
            self._remember(batch, base_offset, now_ms, timestamp)
        elif not self._token and not len(self.producers):
            self._replay_from = entry + 1
        if timestamp > self.segment_max_timestamp:
            self.segment_max_timestamp = timestamp
        elif timestamp == NO_TIMESTAMP:
            self._untimed_append_ms = now_ms
        if self.segment_first_append_ms is None:
            self.segment_first_append_ms = now_ms
        self.segment_bytes += len(view) + self._header_extra
        self._bare = False
        self._entries_since_snapshot += 1
        self._bytes_since_snapshot += len(view)
        header = self._header(EntryKind.BATCH, base_offset, self.next_offset)
        prefix = patched_prefix(batch, base_offset, self.epoch)
        if self.view is not None:
            self.view.give_out(changes, base_offset, append_time_ms)
        return (header, prefix, view[PREFIX_BYTES:]), base_offset, append_time_ms

    def _first_copy(self, batch: BatchHeader, now_ms: int, *, is_native: bool) -> Duplicate | None:
        """The place of a batch that is in the log already; None for one to append.

        Raises:
            BatchRejected: the batch is not the next one of its producer.
        """
        if batch.producer_id < 0:
            return None
        producer_id, epoch, first = batch.producer_id, batch.producer_epoch, batch.base_sequence
        verdict = self.producers.check(producer_id, epoch, first, batch.last_sequence)
        if verdict is None or isinstance(verdict, Duplicate):
            return verdict
        is_gap = verdict is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_native
        if is_gap and self.producers.awaited.explains(producer_id, epoch, first, now_ms):
            raise BatchRejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, BEHIND_REFUSED)
        raise BatchRejected(verdict, _sequence_text(verdict, batch))

    @property
    def sn(self) -> SN:
        """The SN of the last record that was given out, durable or not."""
        if self._last_entry < 0:
            return self._recorded
        if self._sn is None:
            last = self.next_offset - 1
            place = Dlsn(self._last_segment, self._last_entry, last - self._last_base)
            self._sn = SN(place, self._transaction_id, last)
        return self._sn

    @property
    def end(self) -> LogEnd:
        """The end of what was given out, durable or not."""
        return LogEnd(self.sn, self.next_offset, self._token)

    @property
    def token(self) -> bytes:
        """The fencing token that was given out, durable or not; empty for none."""
        return self._token

    def found(self, last: SN) -> None:
        """The last record that was there at the opening; its transaction id is that of the log."""
        if last.transaction_id is not None and last.transaction_id > self._transaction_id:
            self._set_transaction_id(last.transaction_id)
        self._recorded = last._replace(transaction_id=self._transaction_id)

    def _set_transaction_id(self, transaction_id: int) -> None:
        self._transaction_id = transaction_id
        self._header_extra = _HEADER_EXTRA if transaction_id >= 0 else 0

    def fence(self, terms: Terms, entry: int) -> Sequence[bytes | memoryview] | None:
        """The payload of a snapshot with the new token of `terms`, written next as `entry`; None if it is the token.

        Raises:
            TermsRefused: its terms do not hold.
        """
        assert terms.new_token is not None, "an append without a new token is a batch"
        if terms.new_token == self._token:
            return None
        terms.judge(self.end)
        self._token = terms.new_token
        return self.snapshot(entry)

    @property
    def segment_youngest_ms(self) -> int:
        """The start of `retention.ms`: the segment's largest timestamp, or the time of its last append without one.

        Kafka does the same with the time of the segment's file (LogSegment.largestTimestamp).
        """
        timestamp = self.segment_max_timestamp
        return timestamp if timestamp != NO_TIMESTAMP else self._untimed_append_ms

    @property
    def replay_from(self) -> int:
        """The first entry of the current ledger that an opening replays; the ledger must not be shrunk beyond it."""
        return self._replay_from

    def roll_due(self, now_ms: int, more_bytes: int = 0) -> bool:
        """Whether the segment is full or old (`segment.bytes`, `segment.ms`); False for an empty segment."""
        first_ms = self.segment_first_append_ms
        if first_ms is None:
            return False
        return (
            self.segment_bytes + more_bytes > self.settings.segment_bytes
            or now_ms - first_ms >= self.settings.segment_ms
        )

    def may_overrun(self, more_bytes: int) -> bool:
        """Whether a segment that cannot roll may grow by this many bytes."""
        return self.segment_bytes + more_bytes <= self.settings.segment_bytes + OVERRUN_BYTES_MAX

    def segment_is_old(self, now_ms: int) -> bool:
        """Whether the segment being written should end without an append, because it is old or has expired."""
        has_records = self.segment_first_append_ms is not None
        return has_records and (self.roll_due(now_ms) or _expired(self.settings, self.segment_youngest_ms, now_ms))

    def segments_to_drop(self, sealed: Sequence[tuple[int, int]], now_ms: int) -> int:
        """The number of oldest segments that are due to be dropped by `retention.ms` and `retention.bytes`.

        Args:
            sealed: (bytes, time of the youngest record) of each sealed segment, the oldest first.
        """
        return segments_to_drop(self.settings, sealed, self.segment_bytes, now_ms)

    def durable(self, next_offset: Offset) -> None:
        """The entry that ends at `next_offset`, and all entries before it, are durable."""
        assert self.high_watermark <= next_offset <= self.next_offset, (
            f"high watermark {self.high_watermark} asked to move to {next_offset}, log ends at {self.next_offset}"
        )
        self.high_watermark = next_offset
        if self.view is not None:
            self.view.durable(next_offset)

    def unwritten(self, now_ms: int) -> None:
        """The appends that are not durable have failed: their offsets are free again, and producers may repeat them."""
        self.producers.lost(self.high_watermark, now_ms)
        self.next_offset = self.high_watermark
        if self.view is not None:
            self.view.lost()

    def trim(self, start_offset: Offset) -> None:
        """The log starts at `start_offset` from now on."""
        assert start_offset <= self.high_watermark, (
            f"trim to {start_offset} is beyond the high watermark {self.high_watermark}"
        )
        self.start_offset = max(self.start_offset, start_offset)

    def _header(self, kind: EntryKind, base_offset: Offset, next_offset: Offset) -> bytes:
        epoch, timestamp, replay_from = self.epoch, self.segment_max_timestamp, self._replay_from
        if self._transaction_id >= 0:
            return pack_transaction_header(
                *(kind, epoch, base_offset, next_offset, next_offset),
                *(timestamp, replay_from, NO_ABORT, self._transaction_id),
            )
        return pack_header(kind, epoch, base_offset, next_offset, next_offset, timestamp, replay_from, NO_ABORT)

    def _remember(self, batch: BatchHeader, base_offset: Offset, used_ms: int, timestamp: int) -> None:
        self.producers.record(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,
            base_offset,
            batch.last_offset_delta + 1,
            used_ms,
            timestamp,
        )

    def _check_timestamp(self, batch: BatchHeader, now_ms: int) -> None:
        """KIP-937: `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`.

        The base is the first record's. Old clients (of Sarama) leave the largest at -1, so it may lie below the base.
        """
        timestamp = batch.max_timestamp
        if timestamp < NO_TIMESTAMP:
            raise BatchRejected(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} is no time: 0 and up are")
        if batch.base_timestamp > timestamp:
            timestamp = batch.base_timestamp
        if timestamp == NO_TIMESTAMP:
            return
        if timestamp - now_ms > self.settings.timestamp_after_ms_max:
            raise BatchRejected(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is more than {self.settings.timestamp_after_ms_max} ms ahead of the broker's "
                f"clock ({now_ms}): set the producer's clock or message.timestamp.after.max.ms",
            )
        if now_ms - batch.base_timestamp > self.settings.timestamp_before_ms_max:
            raise BatchRejected(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {batch.base_timestamp} is more than {self.settings.timestamp_before_ms_max} ms behind the "
                f"broker's clock ({now_ms}): see message.timestamp.before.max.ms",
            )


def segments_to_drop(
    settings: PartitionSettings, sealed: Sequence[tuple[int, int]], active_bytes: int, now_ms: int
) -> int:
    """See `PartitionLog.segments_to_drop`; `active_bytes` is the size of the segment being written."""
    excess = sum(size for size, _ in sealed) + active_bytes - settings.retention_bytes
    limited = settings.retention_bytes >= 0
    count = 0
    for size, youngest_ms in sealed:
        if not _expired(settings, youngest_ms, now_ms) and not (limited and excess >= size):
            break
        excess -= size
        count += 1
    return count


def _expired(settings: PartitionSettings, youngest_ms: int, now_ms: int) -> bool:
    limit_ms = settings.retention_ms
    return limit_ms >= 0 and youngest_ms != NO_TIMESTAMP and now_ms - youngest_ms > limit_ms


def _sequence_text(error: ErrorCode, batch: BatchHeader) -> str:
    if error == ErrorCode.INVALID_PRODUCER_EPOCH:
        return f"producer {batch.producer_id} has a newer epoch than {batch.producer_epoch}: another instance took over"
    return (
        f"producer {batch.producer_id} epoch {batch.producer_epoch}: sequence {batch.base_sequence} does not follow "
        "the last one appended: a batch before it is missing"
    )
