"""The work of a dispatcher in one turn is bounded; numbers cite the invariants of `dispatcher`."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack

import pytest
from dispatcher_bench import BATCH, KEY_SHARED, SHARED, Bench, OpenChannel

from gnomon.broker.subscriptions import dispatcher, key_slots, stations, subscription
from gnomon.broker.subscriptions.dispatcher import PLACED_UNITS
from gnomon.broker.subscriptions.subscription import AttachedConsumer
from gnomon.log.entry import Offset


def test_a_long_batch_is_given_in_stretches_and_each_key_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7
    monkeypatch.setattr(dispatcher, "LOOKED_AT_ONCE", 2)
    monkeypatch.setattr(key_slots, "STRETCH_RECORDS", 4)
    bench, channel, looks = Bench(), OpenChannel(), list[int]()
    bench.keys = [b"a", b"b"] * (BATCH // 2)
    for _ in range(2):
        bench.subscribe("k", KEY_SHARED, channel=channel)
    look = bench.look
    monkeypatch.setattr(bench, "look", lambda first, count: (looks.append(count), look(first, count))[1])
    bench.write()
    assert sorted(bench.pump().values()) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    assert looks == [2] * 5
    assert [count for _, _, count, _ in bench.frames] == [2, 2, 2], "the batch is sent once for each stretch"


def test_one_act_sends_a_large_batch_over_a_bounded_number_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:  # 7
    monkeypatch.setattr(dispatcher, "SENT_UNITS_MAX", 250)
    bench = Bench()
    for _ in range(5):
        bench.subscribe("k", KEY_SHARED)
    bench.write()
    channels, offsets = [], list[int]()
    while (wanted := bench.dispatcher.wanted()) is not None:
        parcels = bench.dispatcher.give(wanted, Offset(0), Offset(BATCH), bench.look, 100)
        channels.append(len(parcels))
        offsets += [place for parts in parcels.values() for _, slots in parts for place in places_of(slots)]
    assert max(channels) == 2
    assert sorted(offsets) == list(range(BATCH))


def test_a_batch_is_given_to_as_many_waiting_subscriptions_as_the_allowance_permits() -> None:  # 7
    bench = Bench()
    for number in range(5):
        bench.subscribe(f"s{number}", SHARED)
    bench.write()
    served = []
    while (wanted := bench.dispatcher.wanted()) is not None:
        bench.dispatcher.allowance.left = 250
        served.append(len(bench.dispatcher.give(wanted, Offset(0), Offset(BATCH), bench.look, 100)))
    assert served == [3, 2]


def test_as_many_subscriptions_find_out_where_they_wait_in_a_turn_as_the_allowance_permits() -> None:  # 7
    bench = Bench()
    for number in range(5):
        bench.subscribe(f"s{number}", KEY_SHARED)
    bench.write()
    turns = 0
    while True:
        bench.dispatcher.allowance.left = 2 * PLACED_UNITS
        wanted = bench.dispatcher.wanted()
        turns += 1
        if bench.dispatcher.allowance.left > 0:
            break
        assert bench.dispatcher.allowance.left == 0
    assert (turns, wanted) == (3, 0)


def test_a_station_of_many_readers_is_examined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:  # stations 4
    monkeypatch.setattr(stations, "READERS_AT_ONCE", 2)
    bench = Bench()
    blocked, free = OpenChannel(), OpenChannel()
    for number in range(9):
        bench.subscribe(f"s{number}", SHARED, channel=free if number % 3 else blocked)
    blocked.ready = False
    bench.write()
    assert sorted(bench.pump()) == [2, 3, 5, 6, 8, 9]
    blocked.ready = True
    bench.dispatcher.channel_ready(blocked)
    assert sorted(bench.pump()) == [1, 4, 7]


def places_of(slots: bytes | None) -> Sequence[int]:
    return range(BATCH) if slots is None else unpack(f"<{len(slots) // 4}I", slots)


def with_every_second_record_left_behind() -> tuple[Bench, AttachedConsumer]:
    """A shared subscription and its consumer; an earlier consumer has acknowledged the odd records and is detached."""
    bench = Bench()
    one = bench.subscribe("s", SHARED)
    bench.write()
    bench.pump()
    for offset in range(1, BATCH, 2):
        bench.dispatcher.ack(one, Offset(offset), Offset(offset + 1))
    other = bench.subscribe("s", SHARED)
    bench.dispatcher.detach(one)
    return bench, other


def test_records_of_a_batch_are_given_again_in_a_bounded_number_of_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7
    monkeypatch.setattr(subscription, "RUNS_MAX", 2)
    bench, other = with_every_second_record_left_behind()
    bench.frames.clear()
    assert bench.pump() == {other.number: [0, 2, 4, 6, 8]}
    assert len(bench.frames) == 3


def test_many_runs_of_a_detached_consumer_are_given_again_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:  # 7
    monkeypatch.setattr(dispatcher, "RUNS_MAX", 2)
    bench, other = with_every_second_record_left_behind()
    assert bench.pump() == {other.number: [0, 2]}
    bench.dispatcher.allowance.left = 1
    bench.dispatcher.tick(0.0)
    assert bench.pump() == {other.number: [4, 6]}, "the allowance was spent"
    bench.dispatcher.allowance.left = 1
    bench.dispatcher.tick(0.0)
    assert bench.pump() == {other.number: [8]}


def test_a_long_run_is_acknowledged_in_parts_of_a_bounded_number_of_known_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7
    monkeypatch.setattr(dispatcher, "RUNS_MAX", 4)
    bench = Bench()
    one = bench.subscribe("k", KEY_SHARED)
    bench.write()
    bench.pump()
    assert bench.dispatcher.pieces_of(one, 0, 1 << 60) == [(0, 4), (4, 8), (8, 1 << 60)]
    exclusive = bench.subscribe("e")
    assert bench.dispatcher.pieces_of(exclusive, 0, 1 << 60) == [(0, 1 << 60)]
