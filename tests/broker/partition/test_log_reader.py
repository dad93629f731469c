"""Reading a partition on real stores (numbers: invariants of `log_reader`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnomon.broker.partition.entry import LeaderEpoch, Offset
from gnomon.wire.kafka.errors import ErrorCode

Play = Callable[..., None]


def test_search_by_time_goes_across_segments(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for number, at in enumerate([1000, 3000, 2000, 5000, 4000]):
            await act.append(partition, f"{number}" * 40, at=at)
        assert len(partition.segments) == 5
        for wanted, found in [(0, 0), (1000, 0), (1001, 1), (2500, 1), (3001, 3), (5000, 3), (5001, None)]:
            place = partition.offset_for_timestamp(wanted)
            assert (place[0] if place is not None else None) == found, wanted
        assert partition.max_timestamp_offset() == (3, 5000, 0)

    play(body)


def test_search_by_time_sees_only_what_is_left_after_a_cut(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        for number, at in enumerate([9000, 1000, 2000]):
            await act.append(partition, f"{number}", at=at)
        assert partition.max_timestamp_offset() == (0, 9000, 0)
        await partition.delete_before(Offset(1))
        assert partition.max_timestamp_offset() == (2, 2000, 0)
        assert partition.offset_for_timestamp(1500) == (2, 2000, 0)
        await partition.delete_before(Offset(3))
        assert partition.max_timestamp_offset() is None
        assert partition.offset_for_timestamp(0) is None

    play(body)


def test_epochs_end_where_the_next_one_begins(play: Play) -> None:  # KIP-279
    async def act_of(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for _ in range(3):
            await act.append(partition, "x" * 40)

    async def last(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        ends = [partition.end_of_epoch(LeaderEpoch(epoch)) for epoch in range(4)]
        assert ends == [(0, 3), (1, 6), (2, 6), (-1, -1)]
        await partition.delete_before(Offset(4))
        assert partition.end_of_epoch(LeaderEpoch(0)) == (0, 4)
        assert partition.check_epoch(-1) == partition.check_epoch(2) == ErrorCode.NONE
        assert partition.check_epoch(1) == ErrorCode.FENCED_LEADER_EPOCH
        assert partition.check_epoch(3) == ErrorCode.UNKNOWN_LEADER_EPOCH

    play(act_of, act_of, last)
