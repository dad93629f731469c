"""The entries that bookies store of a source and of its shadow (bench/flights/stored.py)."""

from __future__ import annotations

from typing import Any

from bench.flights.stored import Stored

SOURCE, SHADOW, OFFSETS = "a" * 32, "b" * 32, "c" * 32


def ledger(topic: str, last_entry: int | None, size: int, start_entry: int = 0) -> dict[str, Any]:
    name = f"topics/{topic}/0/{0:020}"
    return {"ledger": name, "start_entry": start_entry, "last_entry": last_entry, "bytes": size}


def stored(*ledgers: dict[str, Any], file_bytes: int) -> Stored:
    return Stored.read(ledgers, [{"bookie": "bookie-1", "bytes": file_bytes}], SOURCE, SHADOW)


def test_entries_and_bytes_are_counted_for_the_topic_that_a_ledger_is_named_after() -> None:
    found = stored(ledger(SOURCE, 9, 1000), ledger(SOURCE, 14, 500, 10), ledger(OFFSETS, 3, 20), file_bytes=1600)
    assert found == Stored(15, 1500, 0, 0, 20, 1600)


def test_a_ledger_without_entries_counts_as_none() -> None:
    assert stored(ledger(SOURCE, None, 0), file_bytes=0).source_entries == 0


def test_a_file_little_larger_than_its_entries_holds_one_copy() -> None:
    assert stored(ledger(SOURCE, 9, 1000), file_bytes=1100).is_one_copy


def test_a_file_twice_as_large_as_the_entries_holds_more_than_one_copy() -> None:
    assert not stored(ledger(SOURCE, 9, 1000), file_bytes=2000).is_one_copy


def test_an_entry_in_a_ledger_of_the_shadow_is_a_second_copy() -> None:
    assert not stored(ledger(SOURCE, 9, 1000), ledger(SHADOW, 0, 1), file_bytes=1100).is_one_copy


def test_an_empty_file_is_no_proof_of_one_copy() -> None:
    assert not stored(file_bytes=0).is_one_copy
