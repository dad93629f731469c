from __future__ import annotations

from gnomon.testing.storms.logs.log_truth import MAX_TIMESTAMP, NOWHERE, LogTruth, ReadRecord, TimeSearch
from gnomon.wire.kafka.compression import Codec


def truth_of(*times: int, append_time: bool = False, codec: int | None = None) -> LogTruth:
    """A log with one acknowledged record for each timestamp."""
    truth = LogTruth(append_time=append_time, codec=codec)
    for offset, time in enumerate(times):
        send = truth.send("p", b"value %d" % offset, time, Codec.GZIP)
        truth.acknowledged([send], offset, time if append_time else -1)
    return truth


def read(offset: int, time: int, codec: int = Codec.GZIP) -> ReadRecord:
    return ReadRecord(offset, b"value %d" % offset, time, codec)


def search(truth: LogTruth, wanted: int, offset: int, time: int, start: int = 0) -> list[str]:
    """The judgement of a search over the whole log, of which the records below `start` are deleted."""
    truth.searched(TimeSearch(wanted, offset, time, start, start, truth.end))
    return truth.judge([read(at, time) for at, time in truth.known.items() if at >= start], start)


def test_a_correct_log_passes() -> None:
    truth = truth_of(5, 9, 2)
    truth.read("r", [read(0, 5), read(1, 9)])
    assert search(truth, 6, 1, 9) == []


def test_another_codec_and_another_timestamp_are_found() -> None:
    """Invariants 1 and 2."""
    truth = truth_of(5, 9)
    truth.read("r", [read(0, 5, Codec.NONE), read(1, 8)])
    assert len(truth.wrong) == 3
    truth = truth_of(5, codec=Codec.ZSTD)
    truth.read("r", [read(0, 5)])
    assert truth.wrong == ["offset 0 has codec 1, not 4"]


def test_an_append_time_that_is_not_the_stored_one_or_is_not_told_is_found() -> None:
    """Invariant 2."""
    truth = truth_of(100, append_time=True)
    truth.read("r", [read(0, 101)])
    assert truth.wrong == ["offset 0 has timestamp 101, it was told as 100"]
    truth = LogTruth(append_time=True, codec=None)
    truth.acknowledged([truth.send("p", b"v", 1, Codec.NONE)], 0, -1)
    assert "append time -1" in truth.wrong[0]


def test_a_search_that_misses_the_first_record_is_found() -> None:
    """Invariant 3."""
    assert "comes before it" in search(truth_of(5, 9, 7), 6, 2, 7)[0]
    assert "found nothing" in search(truth_of(5, 9, 7), 6, NOWHERE, -1)[0]
    assert "earlier time" in search(truth_of(5, 9, 7), 6, 0, 5)[0]
    assert "below the log's start" in search(truth_of(5, 9, 7), 3, 0, 5, start=1)[0]
    assert search(truth_of(5, 9, 7), 6, 2, 7, start=2) == []
    assert search(truth_of(5, 9, 7), 10, NOWHERE, -1) == []


def test_a_search_for_the_largest_timestamp_that_finds_another_is_found() -> None:
    """Invariant 4."""
    assert search(truth_of(5, 9, 7), MAX_TIMESTAMP, 1, 9) == []
    assert "larger one" in search(truth_of(5, 9, 7), MAX_TIMESTAMP, 2, 7)[0]
    assert "found nothing" in search(truth_of(5, 9, 7), MAX_TIMESTAMP, NOWHERE, -1, start=2)[0]


def test_the_rules_of_every_log_hold_too() -> None:
    truth = truth_of(5, 9)
    assert "lost write" in truth.judge([read(0, 5)], 0)[0]
