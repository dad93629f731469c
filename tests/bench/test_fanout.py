"""The fan-out bench: its frames, the spread of its subscriptions, and its page of results."""

from __future__ import annotations

import time
from pathlib import Path

from bench.fanout.fleet import TopicLeader
from bench.fanout.goals import delay_case, subscriptions_case, verdicts
from bench.fanout.page import write_page
from bench.fanout.record import RunRecord
from bench.fanout.scale import FanoutScale
from bench.fanout.stamp import StampedFrame, quantile, sent_at, value_at
from bench.fanout.subscriptions import connections
from bench.process import MeasuredProcess
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import iterate_records


def test_a_stamped_frame_has_a_valid_batch_with_the_time_of_the_send() -> None:
    for records, value_bytes in ((1, 100), (1, 1024), (50, 100)):
        before = time.monotonic()
        frame = StampedFrame("fan", 3, records, value_bytes).stamped()
        batch = memoryview(frame)[frame.index(b"fan") + 3 + 12 :]
        assert int.from_bytes(frame[frame.index(b"fan") + 7 :][:4], "big") == 3, "its partition"
        assert parse_batch(batch).records_count == records
        first = next(iter(iterate_records(batch, 1 << 20)))
        assert first.value is not None
        assert before <= sent_at(first.value) <= time.monotonic()
        assert sent_at(batch, value_at(value_bytes)) == sent_at(first.value)


def test_subscriptions_are_spread_evenly_with_at_most_a_thousand_on_a_connection(tmp_path: Path) -> None:
    with MeasuredProcess(["true"], tmp_path / "log") as nobody:
        places = [TopicLeader(name, nobody, 0, f"127.0.0.1:{number}") for number, name in enumerate("abc")]
        assert connections(places[:1], 10_000) == [("127.0.0.1:0", "a", 1000)] * 10
        assert [(topic, count) for _, topic, count in connections(places, 1_000)] == [
            ("a", 334),
            ("b", 333),
            ("c", 333),
        ]
        assert sum(count for _, _, count in connections(places, 100_000)) == 100_000


def test_a_quantile_is_one_of_the_ordered_figures() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert quantile([1.0, 2.0], 1) == 2.0
    assert quantile([], 0.5) == 0.0


def test_medians_are_judged_and_a_new_measurement_replaces_the_old_one(tmp_path: Path) -> None:
    record, case = RunRecord(tmp_path), subscriptions_case(10_000, 4)
    record.add("subscriptions", case, {"connected_s": 99.0}, first=True)
    for number, seconds in enumerate((4.0, 9.0, 5.0)):
        record.add("subscriptions", case, {"connected_s": seconds, "mean_ms": 151.0}, first=number == 0)
    record.add("delay", delay_case(1_000), {"delay_p50_ms": 2.0}, first=True)
    found = {
        (verdict.case, verdict.what): (verdict.measured, verdict.word)
        for verdict in verdicts(RunRecord(tmp_path), FanoutScale())
        if verdict.measured is not None
    }
    assert found == {
        (case, "all connected"): (5.0, "reached"),
        (case, "mean delivery"): (151.0, "missed"),
        (delay_case(1_000), "delay source → shadow, p50"): (2.0, "reached"),
    }
    write_page(record, tmp_path)
    page = (tmp_path / "fanout.md").read_text()
    assert "2 reached, 1 missed." in page
    assert "| 10,000 subscriptions, 4 shadows | 5 (4–9) | 151 |" in page
