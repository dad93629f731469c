"""Bugs in the conditions of writes; the sweep over clients that race on conditions looks for them."""

from __future__ import annotations

from typing import Any

import pytest
from conditional_scenario import RACING, RACING_UNHEARD

from gnomon.broker.kafka import configs
from gnomon.broker.partition import log as log_module
from gnomon.broker.partition.appends import Appends, Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.conditions.marks import BatchMarks, ExpectedOffset
from gnomon.broker.partition.conditions.terms import LogEnd, Terms
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import Producers
from gnomon.client.writes.write_pipeline import WritePipeline
from gnomon.log.segment_record import LAST_RECORD
from gnomon.log.sn import SN
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode

from planted.planted_bug import ScenarioBugs

CONDITION_BUGS = ScenarioBugs(RACING)
planted = CONDITION_BUGS.planted


@planted("a condition is judged by the high watermark", breaks="broker.partition.conditions.terms 1", quick=True)
def by_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def durable(log: Any) -> LogEnd:
        return LogEnd(SN(None, log.sn.transaction_id, log.high_watermark - 1), log.high_watermark, log.token)

    patch.setattr(PartitionLog, "end", property(durable))


@planted("a condition is judged on arrival", breaks="broker.partition.conditions.terms 1", quick=True)
def on_arrival(patch: pytest.MonkeyPatch) -> None:
    wait = Appends.wait

    def unconditional(appends: Any, records: Any, callback: Any, slot: Any, terms: Any = None) -> None:
        if terms is not None and terms.new_token is None and not terms.looks:
            terms.expected = None
        wait(appends, records, callback, slot, terms)

    patch.setattr(Appends, "wait", unconditional)


@planted("a condition is judged before the repeat", breaks="broker.partition.log 7", quick=True)
def before_the_repeat(patch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def judging(log: Any, view: Any, now_ms: int, entry: int, terms: Any = None) -> Any:
        if terms is not None:
            terms.judge(log.end)
        return append(log, view, now_ms, entry, terms)

    patch.setattr(PartitionLog, "append", judging)


@planted("a refusal is given before its cause is durable", breaks="broker.partition.conditions.terms 3")
def before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appends, "after_all", lambda appends, callback, slot, answer: answer())


@planted(
    "a refusal of what lies beyond the end is not confirmed",
    breaks="broker.partition.conditions.terms 3",
    scenario=RACING_UNHEARD,
)
def unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "confirm", lambda partition, done: done(True))


@planted(
    "the header is sought in the first record only",
    breaks="broker.partition.conditions.marks 2",
    found_by="tests/broker/partition/test_fences.py",
)
def first_record_only(patch: pytest.MonkeyPatch) -> None:
    find = log_module.marks_at_once

    def first(view: Any, batch: Any) -> BatchMarks:
        marks = find(view, batch)
        return marks._replace(offsets=tuple(each for each in marks.offsets if each.delta == 0))

    patch.setattr(log_module, "marks_at_once", first)


@planted("the header is ignored", breaks="broker.partition.conditions.marks 2", quick=True)
def header_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_module, "marks_at_once", lambda view, batch: log_module.NO_MARKS)


@planted(
    "the offset of a record is compared with that of its batch",
    breaks="broker.partition.conditions.marks 2",
    found_by="tests/broker/partition/test_fences.py",
)
def without_the_delta(patch: pytest.MonkeyPatch) -> None:
    find = log_module.marks_at_once

    def flat(view: Any, batch: Any) -> BatchMarks:
        marks = find(view, batch)
        return marks._replace(offsets=tuple(ExpectedOffset(0, each.offset) for each in marks.offsets))

    patch.setattr(log_module, "marks_at_once", flat)


@planted(
    "the SN of the last record is lost at a roll",
    breaks="broker.partition.log 7",
    found_by="tests/broker/partition/test_terms.py",
)
def lost_at_a_roll(patch: pytest.MonkeyPatch) -> None:
    opening = Chain.open

    async def forgetful(chain: Any, settings: Any, now_ms: int) -> Any:
        log, segments = await opening(chain, settings, now_ms)
        last, place = segments[-1], log.sn.dlsn
        if LAST_RECORD in last.ledger.properties and place is not None and place.segment != last.base_offset:
            log.found(SN(None, log.sn.transaction_id, log.sn.sequence_id))
        return log, segments

    patch.setattr(Chain, "open", forgetful)


@planted("the last transaction id is not known after an opening", breaks="broker.partition.log 8", quick=True)
def transaction_forgotten(patch: pytest.MonkeyPatch) -> None:
    restore, found = PartitionLog.restore, PartitionLog.found

    def without(log: Any, header: Any, *rest: Any) -> None:
        restore(log, header._replace(transaction_id=-1), *rest)

    patch.setattr(PartitionLog, "restore", without)
    patch.setattr(PartitionLog, "found", lambda log, last: found(log, last._replace(transaction_id=-1)))


@planted("the token is lost at an opening", breaks="broker.partition.log 8", quick=True)
def token_lost(patch: pytest.MonkeyPatch) -> None:
    restore = Producers.restore_snapshot
    patch.setattr(Producers, "restore_snapshot", lambda producers, snapshot: (restore(producers, snapshot)[0], b""))


@planted(
    "a fence is answered before it is durable",
    breaks="broker.partition.conditions.terms 3",
    found_by="tests/broker/partition/test_fences.py",
)
def fence_answered_early(patch: pytest.MonkeyPatch) -> None:
    written = Appends.written

    def early(appends: Any, entry: Any) -> None:
        base, next_offset, append_time_ms, callback, slot = entry
        if callback is not None and base < 0:
            callback.appended(slot, Produced(ErrorCode.NONE, base, -1, 0))
            callback = None
        written(appends, (base, next_offset, append_time_ms, callback, slot))

    patch.setattr(Appends, "written", early)


@planted(
    "a refusal takes the sequence of its batch",
    breaks="broker.partition.conditions.terms 2",
    found_by="tests/broker/partition/test_terms.py",
)
def takes_the_sequence(patch: pytest.MonkeyPatch) -> None:
    append, judge = PartitionLog.append, Terms.judge

    def remembering(log: Any, view: Any, now_ms: int, entry: int, terms: Any = None) -> Any:
        def judged(given: Any, end: Any) -> None:
            batch = parse_batch(view)
            if batch.producer_id >= 0:
                log.producers.record(
                    *(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence),
                    *(log.next_offset, batch.records_count, now_ms),
                )
            judge(given, end)

        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Terms, "judge", judged)
            return append(log, view, now_ms, entry, terms)

    patch.setattr(PartitionLog, "append", remembering)


@planted(
    "AlterConfigs that leaves the config out switches it off",
    breaks="broker.configs.topic_configs, check_kept",
    found_by="tests/broker/kafka/test_configs.py",
)
def config_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(configs, "check_kept", lambda before, after: None)


@planted("a batch behind a refused one keeps its number", breaks="client.writes.write_pipeline 3", quick=True)
def number_kept(patch: pytest.MonkeyPatch) -> None:
    resume = WritePipeline.resume

    def same_epoch(pipeline: Any) -> Any:
        before = pipeline._producer
        again = resume(pipeline)
        if before is not None and pipeline._producer is not None:
            pipeline._producer = pipeline._producer._replace(epoch=before.epoch)
        return again

    patch.setattr(WritePipeline, "resume", same_epoch)
