from __future__ import annotations

from gnomon.testing.storms.kafka.group_checker import NO_OFFSET, CommitOutcome, GroupHistory


def test_a_correct_group_passes() -> None:
    history = GroupHistory()
    history.synced("a", 1, 0.0, 1.0, "a/1", (0, 1))
    first = history.commits(0, 5, 1.0)
    first.settle(CommitOutcome.DONE, 2.0)
    history.synced("a", 2, 2.0, 3.0, "b/1", (0,))
    history.synced("b", 2, 2.0, 3.0, "b/1", (1,))
    history.accepted("a", 1, 2.5, "heartbeat")  # sent before any member knew of the next generation
    second = history.commits(0, 6, 3.0)
    history.fetched(0, 6, 3.5)
    history.fetched(0, 5, 3.5)
    second.settle(CommitOutcome.DONE, 4.0)
    history.fetched(0, 6, 5.0)
    history.fetched(1, NO_OFFSET, 5.0)
    assert history.wrong == []
    assert history.generation == 2


def test_two_plans_of_one_generation_are_found() -> None:
    history = GroupHistory()
    history.synced("a", 1, 0.0, 1.0, "a/1", (0,))
    history.synced("b", 1, 0.0, 1.0, "b/1", (1,))
    assert history.wrong == ["generation 1 has plan a/1 and, to b, b/1"]


def test_two_owners_of_a_partition_are_found() -> None:
    history = GroupHistory()
    history.synced("a", 1, 0.0, 1.0, "a/1", (0, 1))
    history.synced("b", 1, 0.0, 1.0, "a/1", (1,))
    assert history.wrong == ["partition 1 is a's and b's in generation 1"]


def test_a_request_that_succeeds_in_a_past_generation_is_found() -> None:
    history = GroupHistory()
    history.synced("a", 2, 0.0, 1.0, "a/1", (0,))
    history.accepted("b", 1, 1.5, "heartbeat")
    history.synced("b", 1, 1.5, 2.0, "b/1", ())
    assert [text.split(" of ")[0] for text in history.wrong] == ["a heartbeat", "a sync"]


def test_an_offset_that_goes_back_is_found() -> None:
    history = GroupHistory()
    history.commits(0, 5, 0.0).settle(CommitOutcome.DONE, 1.0)
    history.commits(0, 6, 1.5).settle(CommitOutcome.DONE, 2.0)
    history.fetched(0, 5, 3.0)
    history.fetched(0, NO_OFFSET, 3.0)
    assert [text.split(" after")[0] for text in history.wrong] == [
        "partition 0 went back to offset 5",
        "partition 0 went back to offset -1",
    ]


def test_a_commit_of_unknown_outcome_may_come_late_and_concurrent_commits_may_come_in_any_order() -> None:
    history = GroupHistory()
    history.commits(0, 5, 0.0)
    slow = history.commits(0, 6, 0.0)
    history.commits(0, 7, 1.0).settle(CommitOutcome.DONE, 2.0)
    slow.settle(CommitOutcome.DONE, 3.0)
    history.fetched(0, 5, 4.0)
    history.fetched(0, 6, 4.0)
    assert history.wrong == []


def test_an_offset_that_was_refused_or_never_committed_is_found() -> None:
    history = GroupHistory()
    history.commits(0, 5, 0.0).settle(CommitOutcome.REFUSED, 1.0)
    history.fetched(0, 5, 2.0)
    history.fetched(0, 9, 2.0)
    assert history.wrong == [
        "offset 5 of partition 0 is seen, and it was refused",
        "offset 9 of partition 0 is seen, and it was never committed",
    ]
