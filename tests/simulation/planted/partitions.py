"""Bugs in the log of a partition."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from gnomon.bookie.ids import EntryId
from gnomon.broker.partition import chain as chain_module
from gnomon.broker.partition import log as log_module
from gnomon.broker.partition import producers as producers_module
from gnomon.broker.partition import writable
from gnomon.broker.partition.appends import Appends, Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import AwaitedBatches, Duplicate, Producers
from gnomon.broker.partition.state import PartitionState
from gnomon.broker.partition.trim import Trim
from gnomon.broker.partition.writable import DELETED, RELEASED
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment
from gnomon.testing.simulation.faults import Fault
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
    opening = Chain.open

    async def forgetting(chain: Any, settings: Any, now_ms: int) -> Any:
        log, segments = await opening(chain, settings, now_ms)
        ledger = segments[-1].ledger
        if ledger.last_add_confirmed < ledger.start_entry:
            log.producers = Producers()
        return log, segments

    patch.setattr(Chain, "open", forgetting)


@planted("replaying begins one entry late", breaks="broker.partition.entry 3", quick=True)
def replay_late(patch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def late(log: Any, view: Any, now_ms: int, entry: int, terms: Any = None) -> Any:
        log._replay_from = max(log._replay_from, entry)
        return append(log, view, now_ms, entry, terms)

    patch.setattr(PartitionLog, "append", late)


@planted("shrinking passes the entry that replaying begins at", breaks="broker.partition.entry 3")
def replay_from_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "replay_from", property(lambda log: 1 << 62))


@planted("a failed append leaves its producer state", breaks="broker.partition.log 4")
def failed_append_remembered(patch: pytest.MonkeyPatch) -> None:
    opening = Chain.open
    opened: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    async def keeping(chain: Any, settings: Any, now_ms: int) -> Any:
        log, segments = await opening(chain, settings, now_ms)
        before, opened[chain] = opened.get(chain), log
        if before is not None:
            log.producers = before.producers
        return log, segments

    patch.setattr(Chain, "open", keeping)


@planted("a failed append leaves its offsets assigned", breaks="broker.partition.log 4, entry 1")
def offsets_not_reset(patch: pytest.MonkeyPatch) -> None:
    opening = Chain.open
    opened: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    async def going_on(chain: Any, settings: Any, now_ms: int) -> Any:
        log, segments = await opening(chain, settings, now_ms)
        before, opened[chain] = opened.get(chain), log
        if before is not None:
            log.next_offset = max(log.next_offset, before.next_offset)
        return log, segments

    patch.setattr(PartitionLog, "unwritten", lambda log, now_ms: log.producers.lost(log.high_watermark, now_ms))
    patch.setattr(Chain, "open", going_on)


@planted("a repeated batch is not recognised", breaks="broker.partition.producers 2", quick=True)
def duplicates_appended(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def forgetful(producers: Any, *arguments: Any) -> Any:
        verdict = check(producers, *arguments)
        return None if isinstance(verdict, Duplicate) else verdict

    patch.setattr(Producers, "check", forgetful)


@planted(
    "a batch behind a refused one is called out of order",
    breaks="broker.partition.producers 8",
    found_by="tests/broker/partition/test_log_limits.py",
)
def gap_by_a_refusal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AwaitedBatches, "explains", lambda *arguments: False)


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
    def repeated(appends: Any, log: Any, first: Any, callback: Any, slot: Any) -> None:
        callback.appended(slot, Produced(ErrorCode.NONE, first.base_offset, -1, log.start_offset))

    patch.setattr(Appends, "repeated", repeated)


@planted("a sequence that leaves a gap is accepted", breaks="broker.partition.producers 3")
def gaps_taken(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def lenient(producers: Any, *arguments: Any) -> Any:
        verdict = check(producers, *arguments)
        return None if verdict is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else verdict

    patch.setattr(Producers, "check", lenient)


@planted(
    "a batch after a new producer's refused batch overtakes it",
    breaks="broker.partition.producers 5",
    faults={Fault.FULL_DISK: 0.5, Fault.RESET: 2.0},
)
def refused_batch_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AwaitedBatches, "overtaken", lambda *arguments: False)


@planted("an append during a roll goes to the old ledger", breaks="broker.partition.writable 1", quick=True)
def append_while_rolling(patch: pytest.MonkeyPatch) -> None:
    append = Partition.append

    def careless(
        partition: Any, records: Any, callback: Any, slot: Any, terms: Any = None, *, by_all: bool = False
    ) -> None:
        if partition._state is not PartitionState.ROLLING:
            append(partition, records, callback, slot, terms, by_all=by_all)
            return
        partition._state = PartitionState.OPEN
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(PartitionLog, "roll_due", lambda *arguments: False)
            append(partition, records, callback, slot, terms, by_all=by_all)
        if partition._state is PartitionState.OPEN:
            partition._state = PartitionState.ROLLING

    patch.setattr(Partition, "append", careless)


@planted("batches that waited for a roll are written in reverse order", breaks="broker.partition.writable 1")
def stalled_reversed(patch: pytest.MonkeyPatch) -> None:
    resume = Appends.resume

    def reversing(appends: Any, append: Any) -> None:
        appends._waiting.reverse()
        resume(appends, append)

    patch.setattr(Appends, "resume", reversing)


@planted("the new segment begins one offset late", breaks="broker.partition.entry 1", quick=True)
def segment_late(patch: pytest.MonkeyPatch) -> None:
    roll = Chain.roll

    async def late(chain: Any, log: Any, segment: Any, now_ms: int) -> Any:
        made = await roll(chain, log, segment, now_ms)
        log.next_offset = log.high_watermark = Offset(log.next_offset + 1)
        return made

    patch.setattr(Chain, "roll", late)


@planted("a new start of the log is not stored", breaks="broker.partition.chain 4")
def start_not_durable(patch: pytest.MonkeyPatch) -> None:
    async def shrink(segment: Any, end_entry: Any, start_offset: Any, last: Any = None, **joined: Any) -> None:
        await segment.ledger.shrink(end_entry, **joined)

    patch.setattr(Chain, "shrink", staticmethod(shrink))


@planted("DeleteRecords deletes one entry too many", breaks="broker.partition.chain 4", quick=True)
def shrink_too_far(patch: pytest.MonkeyPatch) -> None:
    shrink = Chain.shrink

    async def too_far(segment: Any, end_entry: Any, start_offset: Any, last: Any = None, **joined: Any) -> None:
        end = min(end_entry + 1, segment.ledger.last_add_confirmed + 1)
        await shrink(segment, EntryId(end), start_offset, last, **joined)

    patch.setattr(Chain, "shrink", staticmethod(too_far))


@planted("DeleteRecords drops the segment of the offset", breaks="broker.partition.trim, drop")
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
    claim = chain_module.claim_ledger

    async def falling(*arguments: Any, **options: Any) -> Any:
        ledger = await claim(*arguments, **options)
        ledger.properties[chain_module.EPOCH] = max(0, ledger.properties[chain_module.EPOCH] - 2)
        return ledger

    patch.setattr(chain_module, "claim_ledger", falling)


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
    patch.setattr(writable, "REOPEN_SECONDS", math.inf)


@planted("appends that wait are forgotten when the opening fails", breaks="broker.partition.partition 2")
def stalled_forgotten(patch: pytest.MonkeyPatch) -> None:
    refuse_waiting = Appends.refuse_waiting

    def forgetting(appends: Any, outcome: Produced) -> None:
        if outcome not in (DELETED, RELEASED):
            appends._waiting.clear()
        refuse_waiting(appends, outcome)

    patch.setattr(Appends, "refuse_waiting", forgetting)


@planted("a refusal is answered as a success without an offset", breaks="broker.partition.writable 2")
def refusal_as_success(patch: pytest.MonkeyPatch) -> None:
    fail_in_flight = Appends.fail_in_flight

    def lying(appends: Any, code: Any, text: str) -> None:
        fail_in_flight(appends, code if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ErrorCode.NONE, text)

    patch.setattr(Appends, "fail_in_flight", lying)
