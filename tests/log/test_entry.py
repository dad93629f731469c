"""The header of a partition's entry (numbers: invariants of `entry`)."""

from __future__ import annotations

import pytest

from gnomon.log.entry import (
    BATCH_AT,
    HEADER_BYTES,
    KINDS_READ,
    NO_ABORT,
    TRANSACTION_HEADER_BYTES,
    VERSION,
    EntryHeader,
    EntryKind,
    LeaderEpoch,
    Offset,
    UnknownEntry,
    check_form,
    pack_header,
    pack_transaction_header,
    unpack_entry,
    unpack_header,
    unpack_reach,
)

HEADER = EntryHeader(
    EntryKind.BATCH, LeaderEpoch(3), Offset(10), Offset(14), Offset(14), 1_700_000_000_000, 7, NO_ABORT
)


@pytest.mark.parametrize("kind", sorted(KINDS_READ))
def test_a_header_is_read_as_it_was_written(kind: EntryKind) -> None:
    header = HEADER._replace(kind=kind)
    payload = memoryview(pack_header(*header[:-1]) + b"records")
    assert len(payload) == HEADER_BYTES + len(b"records")
    assert unpack_header(payload) == header
    form, next_offset = unpack_reach(payload)
    assert (BATCH_AT.get(form), next_offset) == (HEADER_BYTES if kind == EntryKind.BATCH else None, 14)


@pytest.mark.parametrize("kind", sorted(KINDS_READ))
def test_a_header_with_a_transaction_id_is_read_as_it_was_written(kind: EntryKind) -> None:  # 6
    header = HEADER._replace(kind=kind, transaction_id=(1 << 63) - 1)
    payload = memoryview(pack_transaction_header(*header) + b"records")
    assert unpack_entry(payload) == (header, b"records")
    form, next_offset = unpack_reach(payload)
    begin = TRANSACTION_HEADER_BYTES if kind == EntryKind.BATCH else None
    assert (BATCH_AT.get(form), next_offset) == (begin, 14)
    for size in range(HEADER_BYTES, TRANSACTION_HEADER_BYTES):
        with pytest.raises(UnknownEntry, match=f"an entry has {size} bytes, a header of version 2 has 62"):
            unpack_header(payload[:size])


@pytest.mark.parametrize(
    ("version", "kind", "why"),
    [
        (VERSION, EntryKind.MARKER, r"is of kind 3 \(MARKER\), which this gnomon does not read"),
        (VERSION, EntryKind.CLEANED, r"is of kind 4 \(CLEANED\), which this gnomon does not read"),
        (VERSION, 0, "is of kind 0, which this gnomon does not read"),
        (VERSION, 77, "is of kind 77, which this gnomon does not read"),
        (3, EntryKind.BATCH, "has a header of version 3, this gnomon reads versions 1 and 2"),
        (0, EntryKind.BATCH, "has a header of version 0, this gnomon reads versions 1 and 2"),
    ],
)
def test_an_entry_of_an_unknown_kind_or_version_is_an_error_that_says_what_to_do(  # 5
    version: int, kind: int, why: str
) -> None:
    payload = bytes([version, kind]) + pack_header(*HEADER[:-1])[2:]
    text = f"^an entry {why}: upgrade gnomon to the version that wrote it$"
    with pytest.raises(UnknownEntry, match=text):
        unpack_header(memoryview(payload))
    with pytest.raises(UnknownEntry, match=text):
        check_form(unpack_reach(payload)[0])


def test_bytes_that_are_shorter_than_a_header_are_no_entry_of_a_partition() -> None:
    for size in range(HEADER_BYTES):
        with pytest.raises(UnknownEntry, match=f"an entry has {size} bytes"):
            unpack_header(memoryview(pack_header(*HEADER[:-1])[:size]))


def test_the_error_names_the_entry_if_the_reader_knows_it() -> None:
    with pytest.raises(UnknownEntry, match="an entry is of kind 9") as caught:
        check_form(VERSION << 8 | 9)
    assert str(caught.value.at(5, "topics/a/0/0")).startswith("entry 5 of ledger 'topics/a/0/0' is of kind 9, which")
