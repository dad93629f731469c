"""Bugs in sessions, searches, epochs, sequences and codecs; the sweeps over rich logs look for them."""

from __future__ import annotations

from typing import Any

import pytest
from rich_scenario import RICH

from gnomon.broker.kafka import poll
from gnomon.broker.kafka.fetch_sessions import FetchSession
from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition import producers
from gnomon.broker.partition.producers import Duplicate, Producers
from gnomon.log import log_reader
from gnomon.log.log_reader import LogReader
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch_response import FetchedPartition

from planted.planted_bug import ScenarioBugs

LOG_BUGS = ScenarioBugs(RICH)
planted = LOG_BUGS.planted


# --- readers ---


@planted("the first partition of a session takes every response", breaks="broker.kafka.fetch_sessions 5")
def no_turns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FetchSession, "served", lambda session, followed: None)


@planted("a session goes on with a partition that its client forgot", breaks="broker.kafka.fetch_sessions, follow")
def nothing_forgotten(patch: pytest.MonkeyPatch) -> None:
    follow = FetchSession.follow
    patch.setattr(FetchSession, "follow", lambda session, request: follow(session, request._replace(forgotten=[])))


@planted(
    "a poll below the log's start is answered with nothing", quick=True, breaks="broker.kafka.poll, OFFSET_OUT_OF_RANGE"
)
def below_start_empty(patch: pytest.MonkeyPatch) -> None:
    def shown(partition: int, code: int, *rest: Any, **records: Any) -> Any:
        code = ErrorCode.NONE if code == ErrorCode.OFFSET_OUT_OF_RANGE else code
        return FetchedPartition(partition, code, *rest, **records)

    patch.setattr(poll, "FetchedPartition", shown)


@planted("a partition gives more bytes than the request allows", quick=True, breaks="broker.kafka.poll 3")
def limit_ignored(patch: pytest.MonkeyPatch) -> None:
    read = LogReader.read

    def generous(reader: Any, offset: Any, limit: int, first: bool, views: Any) -> Any:
        return read(reader, offset, max(limit, 1000), first, views)

    patch.setattr(LogReader, "read", generous)


@planted("a search by time finds the first record of the batch", breaks="wire.kafka.records, find_by_timestamp")
def first_of_the_batch(patch: pytest.MonkeyPatch) -> None:
    def found(view: Any, timestamp: int, bytes_max: int, records_max: int, start_offset: int = 0) -> Any:
        header = parse_batch(view)
        late = header.max_timestamp >= timestamp
        return (max(header.base_offset, start_offset), header.max_timestamp) if late else None

    patch.setattr(log_reader, "find_by_timestamp", found)


@planted("the largest timestamp may be that of a deleted record", breaks="log.log_reader 3")
def largest_of_the_batch(patch: pytest.MonkeyPatch) -> None:
    def largest(view: Any, bytes_max: int, records_max: int, start_offset: int) -> int:
        return parse_batch(view).max_timestamp

    patch.setattr(log_reader, "largest_timestamp", largest)


# --- producers ---


@planted("no sequence follows 2^31 - 1", breaks="broker.partition.producers 3", quick=True)
def no_wrap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producers, "SEQUENCE_MODULUS", 1 << 32)


@planted("an older epoch is not fenced", breaks="broker.partition.producers 4", quick=True)
def old_epoch_appends(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def unfenced(states: Any, producer_id: int, epoch: int, first: int, last: int) -> Any:
        verdict = check(states, producer_id, epoch, first, last)
        return None if verdict is ErrorCode.INVALID_PRODUCER_EPOCH else verdict

    patch.setattr(Producers, "check", unfenced)


@planted("a repeat has no log append time", breaks="broker.partition.producers 2")
def repeat_untimed(patch: pytest.MonkeyPatch) -> None:
    check = Producers.check

    def untimed(states: Any, producer_id: int, epoch: int, first: int, last: int) -> Any:
        verdict = check(states, producer_id, epoch, first, last)
        return verdict._replace(timestamp=-1) if isinstance(verdict, Duplicate) else verdict

    patch.setattr(Producers, "check", untimed)


@planted("the codec of a topic is not applied", breaks="broker.partition.unpacking.recoding", quick=True)
def not_recoded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_log, "recoded_at_once", lambda view, codec, bytes_max: view)


@planted("the acknowledged append time is not the stored one", breaks="broker.partition.log, append", quick=True)
def other_append_time(patch: pytest.MonkeyPatch) -> None:
    stamped = partition_log.with_log_append_time
    patch.setattr(partition_log, "with_log_append_time", lambda view, now_ms: stamped(view, now_ms + 1))
