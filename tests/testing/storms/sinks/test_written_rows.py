"""The judge of a sink's target: sound targets have no finding, each violation has one (numbers: its rules)."""

from __future__ import annotations

import pytest

from gnomon.testing.storms.sinks.written_rows import (
    PARTITIONS,
    ROWS_MAX,
    TASKS_MAX,
    findings,
    findings_meanwhile,
    partition_of,
    rows_of_tasks,
)

LAST = 5
"""The last batch whose commit returned."""


def rows(query: str, batch: int) -> list[str]:
    """The rows of a batch in their order."""
    return [row for task in rows_of_tasks(query, batch) for row in task]


def written(*batches: tuple[str, int]) -> list[list[str]]:
    """The target that has these batches in this order."""
    found = [row for query, batch in batches for row in rows(query, batch)]
    return [[row for row in found if partition_of(row) == partition] for partition in range(PARTITIONS)]


def up_to(last: int, query: str = "q") -> list[tuple[str, int]]:
    return [(query, batch) for batch in range(last + 1)]


def judged(partitions: list[list[str]], last: int = LAST) -> list[str]:
    return findings(partitions, {"q": last}, takes_over=True)


def places(batch: int, partition: int) -> list[int]:
    """The places of a batch's rows in a sound target."""
    sound = written(*up_to(LAST))[partition]
    return [at for at, row in enumerate(sound) if row.startswith(f"q/{batch}/")]


LARGE = next(batch for batch in range(1, LAST) if all(len(places(batch, each)) > 2 for each in range(PARTITIONS)))
"""A batch with several rows in each partition, and batches before and behind it."""


def test_the_rows_of_a_batch_follow_from_the_query_and_the_batch() -> None:  # 1
    for query, batch in (("a", 0), ("a", 1), ("b", 1)):
        tasks = rows_of_tasks(query, batch)
        assert tasks == rows_of_tasks(query, batch)
        assert 1 <= len(tasks) <= TASKS_MAX
        for number, task in enumerate(tasks):
            assert task == [f"{query}/{batch}/{number}/{row}" for row in range(len(task))]
    sizes = [[len(task) for task in rows_of_tasks("a", batch)] for batch in range(50)]
    assert {size for each in sizes for size in each} == {0, 1, ROWS_MAX}
    assert sizes != [[len(task) for task in rows_of_tasks("b", batch)] for batch in range(50)]


def test_each_partition_gets_rows() -> None:  # 1
    assert {partition_of(row) for row in rows("q", LARGE)} == set(range(PARTITIONS))


def test_all_committed_batches_are_no_finding() -> None:  # 2
    assert judged(written(*up_to(LAST))) == []
    assert judged([[], []], -1) == []


def test_one_whole_batch_more_is_no_finding() -> None:  # 3
    assert judged(written(*up_to(LAST + 1))) == []
    assert judged(written(*up_to(0)), -1) == []


def test_batches_of_several_queries_may_be_in_any_order_of_queries() -> None:  # 2
    one, other = up_to(LAST, "a"), up_to(LAST, "b")
    alternating = [batch for pair in zip(one, other, strict=True) for batch in pair]
    for batches in ([*one, *other], [*other, *one], alternating):
        assert findings(written(*batches), {"a": LAST, "b": LAST}, takes_over=True) == []


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_lost_row_is_found(partition: int) -> None:  # 2
    for at in places(LARGE, partition)[:2]:
        target = written(*up_to(LAST))
        lost, behind = target[partition].pop(at), target[partition][at]
        assert judged(target) == [f"query q: row {at} of partition {partition} is {behind}, expected {lost}"]


def test_the_lost_last_row_is_found() -> None:  # 2, 3
    target = written(*up_to(LAST))
    lost = target[0].pop()
    assert judged(target) == [f"query q: partition 0 ends before {lost}"]


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_row_that_is_there_twice_is_found(partition: int) -> None:  # 2
    target = written(*up_to(LAST))
    at = places(LARGE, partition)[1]
    target[partition].insert(at, target[partition][at])
    (finding,) = judged(target)
    assert finding.startswith(f"query q: row {at + 1} of partition {partition} is {target[partition][at]}, expected")


def test_a_batch_that_is_there_twice_is_found() -> None:  # 2
    for again in (0, LARGE, LAST):
        assert rows("q", again)
        finding = judged(written(*up_to(LAST), ("q", again)))[0]
        assert finding.startswith("query q: row ")
        assert finding.endswith(", expected nothing")


def test_rows_of_a_batch_in_another_order_are_found() -> None:  # 2
    target = written(*up_to(LAST))
    at = places(LARGE, 1)[0]
    target[1][at : at + 2] = reversed(target[1][at : at + 2])
    (finding,) = judged(target)
    assert finding.startswith(f"query q: row {at} of partition 1 is ")


def test_batches_in_another_order_are_found() -> None:  # 2
    swapped = up_to(LAST)
    swapped[LARGE], swapped[LARGE - 1] = swapped[LARGE - 1], swapped[LARGE]
    assert judged(written(*swapped)) != []


def test_a_row_in_another_partition_is_found() -> None:  # 2
    target = written(*up_to(LAST))
    moved = target[0].pop(places(LARGE, 0)[0])
    target[1].insert(places(LARGE, 1)[0], moved)
    (finding,) = judged(target)
    assert finding.startswith("query q: row ")


def test_a_row_of_no_batch_is_found() -> None:  # 2
    target = written(*up_to(LAST))
    target[0].append("q/99/0/0")
    assert judged(target) == [f"query q: row {len(target[0]) - 1} of partition 0 is q/99/0/0, expected nothing"]


def test_the_rows_of_a_batch_mixed_with_those_of_another_query_are_found() -> None:  # 2
    target = written(*up_to(LAST, "a"), *up_to(LAST, "b"))
    target[1].insert(1, target[1].pop())
    finished = {"a": LAST, "b": LAST}
    assert "partition 1: the rows of a batch are mixed with others" in findings(target, finished, takes_over=True)
    mixed = written(("a", LARGE), ("b", LARGE))
    for values in mixed:
        values.sort(key=lambda row: int(row.rpartition("/")[2]))
    text = [f"partition {partition}: the rows of a batch are mixed with others" for partition in range(PARTITIONS)]
    assert [finding for finding in findings(mixed, {}, takes_over=True) if "mixed" in finding] == text


def test_a_committed_batch_that_is_not_there_is_found() -> None:  # 3
    for last in range(-1, LAST):
        if rows("q", last + 1):
            assert judged(written(*up_to(last))) != []


def test_a_part_of_the_next_batch_is_found() -> None:  # 3
    whole = written(*up_to(LARGE))
    sound = written(*up_to(LARGE - 1))
    for partition in range(PARTITIONS):
        for more in range(1, len(whole[partition]) - len(sound[partition]) + 1):
            target = written(*up_to(LARGE - 1))
            target[partition] = whole[partition][: len(sound[partition]) + more]
            assert judged(target, LARGE - 1) != [], "one partition has a part of it, the others nothing"
    target = written(*up_to(LARGE))
    target[0].pop()
    assert judged(target, LARGE - 1) != []


def test_two_batches_more_are_found() -> None:  # 3
    assert rows("q", LARGE)
    assert judged(written(*up_to(LARGE)), LARGE - 2) != []


def test_each_query_is_judged_by_its_own_commits() -> None:  # 3
    target = written(*up_to(LAST, "a"), *up_to(0, "b"))
    assert rows("b", 1)
    assert findings(target, {"a": LAST, "b": 0}, takes_over=True) == []
    (finding,) = findings(target, {"a": LAST, "b": 1}, takes_over=True)
    assert finding.startswith("query b: ")


def test_rows_of_an_unknown_query_are_found() -> None:  # 2
    target = written(*up_to(LAST))
    target[1].append("other/0/0/1")
    assert judged(target) == ["there are rows of ['other'], which are no queries"]


def test_a_reader_meanwhile_may_see_any_first_rows_of_each_partition() -> None:  # 4
    whole = written(*up_to(LAST, "a"), *up_to(LAST, "b"))
    for ends in ((0, 0), (1, 0), (len(whole[0]), 3), tuple(map(len, whole))):
        seen = [values[:end] for values, end in zip(whole, ends, strict=True)]
        assert findings_meanwhile(seen, ("a", "b")) == []


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_row_that_a_reader_meanwhile_misses_or_sees_twice_is_found(partition: int) -> None:  # 4
    at = places(LARGE, partition)[1]
    for change in ("missing", "twice"):
        target = written(*up_to(LAST))
        row = target[partition].pop(at)
        target[partition][at:at] = [] if change == "missing" else [row, row]
        (finding,) = findings_meanwhile(target, ("q",))
        assert finding.startswith("query q, meanwhile: row "), change


def test_rows_of_two_queries_are_found_where_none_takes_the_writer_over() -> None:  # 5
    target = written(*up_to(LAST, "a"), ("b", LARGE - 1))
    finished = {"a": LAST, "b": -1}
    found = findings(target, finished, takes_over=False)
    assert "the queries ['a', 'b'] have rows, and none takes the writer over" in found
    assert findings(written(*up_to(LAST, "a")), finished, takes_over=False) == []
