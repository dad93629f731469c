"""Bugs in the log of a partition."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.bookie.ids import EntryId
from gnomon.broker.partition import chain as chain_module
from gnomon.broker.partition import log as log_module
from gnomon.broker.partition import producers as producers_module
from gnomon.broker.partition.appends import Appends, Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition, State
from gnomon.broker.partition.producers import AwaitedBatches, Duplicate, Producers
from gnomon.broker.partition.segment import Segment
from gnomon.broker.partition.trim import Trim
from gnomon.testing.faults import Fault
from gnomon.wire.kafka.errors import ErrorCode

from planted.planted_bug import planted


@planted("producers are not replayed at opening", breaks="broker.partition.entry 3", quick=True)
def producers_not_replayed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "replay", lambda log, header, body, now_ms: None)


@planted("no producer snapshot at a roll", breaks="broker.partition.entry 3")
def bare_segment(patch: pytest.MonkeyPatch) -> None:
    begin = PartitionLog.begin_segment

    def bare(log: Any) -> None:
        begin(log)
        log._bare = False

    patch.setattr(PartitionLog, "begin_segment", bare)


@planted("an empty last segment forgets the producers of the one before", breaks="broker.partition.entry 3")
def empty_segment_forgets(patch: pytest.MonkeyPatch) -> None:
    restore = Chain._restore

    async def forgetting(cls: Any, log: Any, segments: Any, now_ms: int) -> None:
        await restore(log, segments[-1:], now_ms)

    patch.setattr(Chain, "_restore", classmethod(forgetting))


@planted("replaying begins one entry late", breaks="broker.partition.entry 3", quick=True)
def replay_late(patch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def late(log: Any, view: Any, now_ms: int, entry: int) -> Any:
        log._replay_from = max(log._replay_from, entry)
        return append(log, view, now_ms, entry)

    patch.setattr(PartitionLog, "append", late)


@planted("shrinking passes the entry that replaying begins at", breaks="broker.partition.entry 3")
def replay_from_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "replay_from", property(lambda log: 1 << 62))


@planted("a failed append leaves its producer state", breaks="broker.partition.log 4")
def failed_append_remembered(patch: pytest.MonkeyPatch) -> None:
    opening = Partition._open

    async def keeping(partition: Any) -> None:
        before = partition.log
        await opening(partition)
        if before is not None and partition.log is not None and partition.log is not before:
            partition.log.producers = before.producers

    patch.setattr(Partition, "_open", keeping)


@planted("a failed append leaves its offsets given out", breaks="broker.partition.log 4, entry 1")
def offsets_not_reset(patch: pytest.MonkeyPatch) -> None:
    failed, opening = Partition._writing_failed, Partition._open

    def without_reset(partition: Any, error: Exception) -> None:
        end = partition.log.next_offset if partition.log is not None else 0
        failed(partition, error)
        if partition.log is not None:
            partition.log.next_offset = end

    async def going_on(partition: Any) -> None:
        before = partition.log
        await opening(partition)
        if before is not None and partition.log is not None and partition.log is not before:
            partition.log.next_offset = max(partition.log.next_offset, before.next_offset)

    patch.setattr(Partition, "_writing_failed", without_reset)
    patch.setattr(Partition, "_open", going_on)


@planted("a repeated batch is not recognised", breaks="broker.partition.producers 2", quick=True)
def duplicates_appended(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def forgetful(producers: Any, *arguments: Any) -> Any:
        verdict = check(producers, *arguments)
        return None if isinstance(verdict, Duplicate) else verdict

    patch.setattr(Producers, "check", forgetful)


@planted("only four batches of a producer are remembered", breaks="broker.partition.producers 1")
def four_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producers_module, "BATCHES_REMEMBERED", 4)


@planted("a repeated batch is answered with the offset after it", breaks="broker.partition.producers 2")
def duplicate_offset_wrong(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def shifted(producers: Any, *arguments: Any) -> Any:
        verdict = check(producers, *arguments)
        return Duplicate(verdict.next_offset, verdict.next_offset) if isinstance(verdict, Duplicate) else verdict

    patch.setattr(Producers, "check", shifted)


@planted(
    "a repeated batch is answered before the first one is durable",
    breaks="broker.partition.log 5",
    faults={Fault.POWER_LOSS: 2.0, Fault.SLOW_DISK: 1.0, Fault.RESET: 0.3},
)
def duplicate_answered_early(patch: pytest.MonkeyPatch) -> None:
    def repeated(appends: Any, log: Any, first: Any, appender: Any, slot: Any) -> None:
        appender.appended(slot, Produced(ErrorCode.NONE, first.base_offset, -1, log.start_offset))

    patch.setattr(Appends, "repeated", repeated)


@planted("a sequence that leaves a gap is taken", breaks="broker.partition.producers 3")
def gaps_taken(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def lenient(producers: Any, *arguments: Any) -> Any:
        verdict = check(producers, *arguments)
        return None if verdict is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else verdict

    patch.setattr(Producers, "check", lenient)


@planted(
    "what follows a new producer's refused batch overtakes it",
    breaks="broker.partition.producers 5",
    faults={Fault.FULL_DISK: 0.5, Fault.RESET: 2.0},
)
def refused_batch_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AwaitedBatches, "overtaken", lambda *arguments: False)


@planted("an append during a roll goes to the old ledger", breaks="broker.partition.partition 2", quick=True)
def append_while_rolling(patch: pytest.MonkeyPatch) -> None:
    append = Partition.append

    def careless(partition: Any, records: Any, appender: Any, slot: Any) -> None:
        if partition._state is not State.ROLLING:
            append(partition, records, appender, slot)
            return
        partition._state = State.OPEN
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(PartitionLog, "roll_due", lambda *arguments: False)
            append(partition, records, appender, slot)
        if partition._state is State.OPEN:
            partition._state = State.ROLLING

    patch.setattr(Partition, "append", careless)


@planted("what waited for a roll is written in reverse order", breaks="broker.partition.partition 2")
def stalled_reversed(patch: pytest.MonkeyPatch) -> None:
    take_up = Appends.take_up

    def reversing(appends: Any, append: Any) -> None:
        appends._waiting.reverse()
        take_up(appends, append)

    patch.setattr(Appends, "take_up", reversing)


@planted("the new segment begins one offset late", breaks="broker.partition.entry 1", quick=True)
def segment_late(patch: pytest.MonkeyPatch) -> None:
    roll = Chain.roll

    async def late(chain: Any, log: Any, segment: Any, now_ms: int) -> Any:
        made = await roll(chain, log, segment, now_ms)
        log.next_offset = log.high_watermark = Offset(log.next_offset + 1)
        return made

    patch.setattr(Chain, "roll", late)


@planted("a new start of the log is not written down", breaks="broker.partition.chain 4")
def start_not_durable(patch: pytest.MonkeyPatch) -> None:
    async def shrink(segment: Any, end_entry: Any, start_offset: Any, **joined: Any) -> None:
        await segment.ledger.shrink(end_entry, **joined)

    patch.setattr(Chain, "shrink", staticmethod(shrink))


@planted("DeleteRecords gives up one entry too many", breaks="broker.partition.chain 4", quick=True)
def shrink_too_far(patch: pytest.MonkeyPatch) -> None:
    shrink = Chain.shrink

    async def too_far(segment: Any, end_entry: Any, start_offset: Any, **joined: Any) -> None:
        end = min(end_entry + 1, segment.ledger.last_add_confirmed + 1)
        await shrink(segment, EntryId(end), start_offset, **joined)

    patch.setattr(Chain, "shrink", staticmethod(too_far))


@planted("DeleteRecords drops the segment that the offset lies in", breaks="broker.partition.trim, drop")
def delete_one_segment_more(patch: pytest.MonkeyPatch) -> None:
    drop = Trim.drop

    async def one_more(trim: Any, count: int, read_by_all: Any = None) -> bool:
        more = min(count + 1, len(trim._segments) - 1) if count else 0
        return await drop(trim, more, read_by_all)

    patch.setattr(Trim, "drop", one_more)


@planted("retention drops one segment too many", breaks="broker.partition.log, segments_to_drop")
def retention_one_more(patch: pytest.MonkeyPatch) -> None:
    to_drop = log_module.segments_to_drop

    def one_more(settings: Any, sealed: Any, active_bytes: int, now_ms: int) -> int:
        count = to_drop(settings, sealed, active_bytes, now_ms)
        return min(count + 1, len(sealed)) if count else 0

    patch.setattr(log_module, "segments_to_drop", one_more)


@planted("retention drops nothing", breaks="broker.partition.log, segments_to_drop")
def retention_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_module, "segments_to_drop", lambda *arguments: 0)


@planted("leader epochs fall back at a claim", breaks="broker.partition.log 6")
def epochs_fall(patch: pytest.MonkeyPatch) -> None:
    claim = Chain._claim

    async def falling(chain: Any, item: Any, compare: Any) -> Any:
        segment = await claim(chain, item, compare)
        segment.ledger.properties[chain_module.EPOCH] = max(0, segment.ledger.properties[chain_module.EPOCH] - 2)
        return segment

    patch.setattr(Chain, "_claim", falling)


@planted("reading skips the first batch of a segment", breaks="broker.partition.segment 1")
def first_batch_skipped(patch: pytest.MonkeyPatch) -> None:
    entry_of = Segment.entry_of

    def skipping(segment: Any, view: Any, offset: Any) -> Any:
        entry = entry_of(segment, view, offset)
        return EntryId(entry + 2) if offset == segment.base_offset > 0 else entry

    patch.setattr(Segment, "entry_of", skipping)


@planted("a reader's next entry is remembered one too far", breaks="broker.partition.segment 2", quick=True)
def position_too_far(patch: pytest.MonkeyPatch) -> None:
    remember = Segment.remember
    patch.setattr(Segment, "remember", lambda segment, offset, entry: remember(segment, offset, EntryId(entry + 1)))


@planted("a failed partition is never opened again", breaks="broker.partition.partition 3")
def never_reopened(patch: pytest.MonkeyPatch) -> None:
    opening_failed = Partition._opening_failed

    def for_good(partition: Any, error: Exception) -> None:
        opening_failed(partition, error)
        partition._failed_at = float("inf")

    patch.setattr(Partition, "_opening_failed", for_good)


@planted("appends that wait are forgotten when the opening fails", breaks="broker.partition.partition 2")
def stalled_forgotten(patch: pytest.MonkeyPatch) -> None:
    opening_failed = Partition._opening_failed

    def forgetting(partition: Any, error: Exception) -> None:
        partition._appends._waiting.clear()
        opening_failed(partition, error)

    patch.setattr(Partition, "_opening_failed", forgetting)


@planted("a refusal is answered as a success without an offset", breaks="broker.partition.partition 3")
def refusal_as_success(patch: pytest.MonkeyPatch) -> None:
    fail_written = Appends.fail_written

    def lying(appends: Any, code: Any, text: str) -> None:
        fail_written(appends, code if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ErrorCode.NONE, text)

    patch.setattr(Appends, "fail_written", lying)
