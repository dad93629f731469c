"""The choice of the files of a batch (`spark.pipelines.files.next_files`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.pipelines.files.next_files import SourceFile, chosen, place_of

FILES = st.builds(SourceFile, st.text("abc", min_size=1, max_size=3), st.integers(0, 9), st.integers(0, 3))
ARRIVALS = st.lists(st.lists(FILES, max_size=6), max_size=6)


@given(ARRIVALS, st.integers(1, 4), st.booleans())
def test_each_file_is_in_one_batch_and_each_batch_has_the_first_waiting_files(
    arrivals: list[list[SourceFile]], most: int, by_time: bool
) -> None:  # 1, 2, 3
    present: dict[str, SourceFile] = {}
    read: dict[str, SourceFile] = {}
    for files in [*arrivals, *([] for _ in range(40))]:
        present |= {each.name: each for each in files}
        found = chosen(present.values(), read, most, by_time=by_time)
        waiting = [each for name, each in present.items() if name not in read]
        expected = sorted(waiting, key=lambda each: place_of(each, by_time))
        assert list(found.files) == expected[:most]
        assert (found.waiting, found.waiting_bytes) == (len(waiting), sum(each.bytes for each in waiting))
        read |= {each.name: each for each in found.files}
    assert read.keys() == present.keys()


def test_files_are_in_the_order_of_names_or_of_times_and_then_names() -> None:  # 2
    files = [SourceFile("b", 1, 5), SourceFile("a", 1, 5), SourceFile("c", 1, 4)]
    assert [each.name for each in chosen(files, {}, 9, by_time=False).files] == ["a", "b", "c"]
    assert [each.name for each in chosen(files, {}, 9, by_time=True).files] == ["c", "a", "b"]


def test_a_late_file_is_read_and_named() -> None:  # 3, 4
    read = {"b": SourceFile("b", 1, 5)}
    found = chosen([SourceFile("a", 1, 9), SourceFile("c", 1, 2)], read, 9, by_time=False)
    assert ([each.name for each in found.files], found.late) == (["a", "c"], ("a",))
    assert chosen([SourceFile("a", 1, 9), SourceFile("c", 1, 2)], read, 9, by_time=True).late == ("c",)


def test_a_file_that_has_changed_since_it_was_read_is_named_and_not_read_again() -> None:  # 1, 4
    read = {"a": SourceFile("a", 1, 5), "b": SourceFile("b", 1, 5)}
    found = chosen([SourceFile("a", 2, 5), SourceFile("b", 1, 5)], read, 9, by_time=False)
    assert (found.files, found.changed) == ((), ("a",))


def test_a_file_that_was_removed_after_it_was_read_is_no_matter() -> None:  # 1
    assert chosen([], {"a": SourceFile("a", 1, 5)}, 9, by_time=False).changed == ()
