"""The form of exports, and of the parts of snapshots that are in them; numbers cite the invariants of `export_form`."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gnomon.log.tables import export_form
from gnomon.log.tables.export_form import (
    ExportDamaged,
    ExportedPartition,
    ExportHead,
    ExportReader,
    ExportWriter,
)
from gnomon.log.tables.key_entry import NEVER, pack_entry
from gnomon.log.tables.snapshot_form import SnapshotDamaged, SnapshotRecord, decode_part, encode_entries
from gnomon.log.tables.table_digest import ContentDigest, TableDigest

Entries = list[tuple[bytes, bytes]]

KEYS = [b"", b"\0", b"\0\0", b"a", b"k" * 500, b"\xff", b"\xff\xff"]
SMALL = [[(key, pack_entry(b"v", 3, 1, 2, NEVER)) for key in KEYS[:2]], []]


def partition(index: int, entries: Entries, revision: int = 7) -> ExportedPartition:
    digest = TableDigest()
    digest.add(entries)
    return ExportedPartition(index, revision, digest.keys, digest.bytes_used, digest.digest())


def exported(partitions: Sequence[Entries], size: int = 2) -> bytes:
    """A file with parts of at most `size` entries."""
    writer = ExportWriter()
    parts = [writer.begin(ExportHead("settings", len(partitions), 1_700_000_000_000))]
    for index, entries in enumerate(partitions):
        parts.append(writer.partition(partition(index, entries)))
        pages = (entries[first : first + size] for first in range(0, len(entries), size))
        parts += [writer.entries(encode_entries(page)) for page in pages]
    return b"".join([*parts, writer.end()])


def events(*chunks: bytes) -> list[export_form.ExportEvent]:
    reader = ExportReader()
    found = [event for chunk in chunks for event in reader.feed(chunk)]
    reader.close()
    return found


def refusal(data: bytes) -> str:
    with pytest.raises(ExportDamaged) as refused:
        events(data)
    return str(refused.value)


entries_of = st.dictionaries(
    st.binary(max_size=500),
    st.builds(pack_entry, st.binary(max_size=50), *[st.integers(0, 1 << 50)] * 3, st.just(NEVER)),
    max_size=5,
).map(lambda found: sorted(found.items()))


@given(st.lists(entries_of, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 400))
def test_what_is_read_is_what_was_written_however_it_is_divided(
    partitions: list[Entries], size: int, chunk: int
) -> None:
    data = exported(partitions, size)
    head, *found = events(*(data[at : at + chunk] for at in range(0, len(data), chunk)))
    assert head == ExportHead("settings", len(partitions), 1_700_000_000_000)
    read: list[Entries] = []
    for event in found:
        if isinstance(event, ExportedPartition):
            assert event == partition(len(read), partitions[len(read)])
            read.append([])
        else:
            assert not isinstance(event, ExportHead)
            read[-1] += event
    assert read == partitions


def test_a_file_that_is_cut_off_at_any_byte_is_refused() -> None:  # 2
    data = exported(SMALL)
    for size in range(1, len(data)):
        assert refusal(data[:size]) == f"the file is cut off: it ends at byte {size}, without the sum at its end"
    assert refusal(b"") == "the file is no export of a table: it begins with b''"


def test_a_file_with_one_changed_bit_is_refused() -> None:  # 2
    data = exported(SMALL)
    for at in range(len(data)):
        for bit in range(8):
            assert refusal(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


@given(st.data())
def test_a_file_with_other_bytes_anywhere_is_refused(data: st.DataObject) -> None:  # 2
    whole = exported([[(key, pack_entry(b"value", 5, 5, 1, NEVER)) for key in KEYS]], 3)
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.binary(max_size=40))
    changed = whole[:at] + other + whole[at + data.draw(st.integers(0, 40)) :]
    if changed != whole:
        refusal(changed)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_export_are_refused(data: bytes) -> None:
    refusal(data)
    refusal(exported(SMALL)[:12] + data)


def test_the_reason_names_what_is_wrong() -> None:
    data = exported(SMALL)
    assert refusal(b"PK\x03\x04 a zip file") == "the file is no export of a table: it begins with b'PK\\x03\\x04 a z'"
    assert refusal(data[:11] + b"\2" + data[12:]) == "the file has format 2, this gnomon reads 1: upgrade gnomon"
    assert refusal(data[:11] + b"\0" + data[12:]) == "the file has format 0, this gnomon reads 1: the file is damaged"
    assert refusal(data + b"\0") == f"the file is damaged at byte {len(data)}: something follows the end of the export"
    assert refusal(data[:12] + b"\x7f" + data[13:]) == (
        "the file is damaged at byte 12: the CRC of a part's length does not fit"
    )
    assert "the CRC of a part of 21 bytes does not fit" in refusal(data.replace(b"settings", b"sittings"))


def framed(content: bytes) -> bytes:
    lengths = len(content).to_bytes(4, "big") + crc32c(content).to_bytes(4, "big")
    return lengths + crc32c(lengths).to_bytes(4, "big") + content


def part(kind: bytes, fields: object) -> bytes:
    return framed(kind + msgpack.packb(fields))


BEGIN = exported(SMALL)[:12]
HEAD = part(b"H", ["settings", 1, 0])
ONE: Entries = [(b"a", pack_entry(b"v", 0, 0, 1, NEVER))]
PARTITION = part(b"P", list(partition(0, ONE)))


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([HEAD, HEAD], "a part of the kind b'H' is not expected"),
        ([PARTITION], "a part of the kind b'P' is not expected"),
        ([HEAD, framed(encode_entries(ONE))], "a part of the kind b'E' is not expected"),
        ([part(b"S", b"")], "a part of the kind b'S' is not expected"),
        ([HEAD, part(b"X", [])], "a part of the kind b'X' is not expected"),
        ([part(b"H", ["settings", 0, 0])], "the head has another form"),
        ([part(b"H", ["settings", True, 0])], "the head has another form"),
        ([part(b"H", {})], "the head has another form"),
        ([HEAD, part(b"P", [0, 1, 2])], "the beginning of a partition has another form"),
        ([HEAD, part(b"P", [0, 1 << 63, 0, 0, b""])], "the beginning of a partition has another form"),
        ([HEAD, part(b"P", list(partition(1, [])))], "partition 1 follows, of 1, instead of 0"),
        ([HEAD, part(b"P", list(partition(0, []))), PARTITION], "partition 0 follows, of 1, instead of 1"),
        ([HEAD, PARTITION, part(b"S", b"")], "partition 0 has 0 keys and the digest"),
        ([HEAD, part(b"S", b"")], "the file has 0 of 1 partitions"),
        ([HEAD, PARTITION, framed(encode_entries(ONE)), part(b"S", b"")], "the SHA-256 at the end does not fit"),
        ([HEAD, PARTITION, framed(encode_entries([*ONE, *ONE]))], "the key b'a' is not in order"),
        ([HEAD, PARTITION, framed(encode_entries([(b"k" * 501, ONE[0][1])]))], "has 501 bytes: 500 are possible"),
        ([HEAD, PARTITION, part(b"E", [b"a", b"short"])], "has the key b'a' without an entry"),
        ([HEAD, PARTITION, part(b"E", [b"a"])], "has no pairs of keys and entries"),
        ([HEAD, PARTITION, framed(b"E\xc1")], "a part of the snapshot cannot be decoded"),
        ([HEAD, framed(b"P\xc1")], "a part cannot be decoded"),
        ([framed(b"")], "a part has 0 bytes"),
    ],
)
def test_parts_with_the_right_crc_that_do_not_fit_are_refused(parts: list[bytes], reason: str) -> None:  # 2
    assert reason in refusal(b"".join([BEGIN, *parts]))


def test_a_part_that_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    monkeypatch.setattr(export_form, "PART_BYTES_MAX", 100)
    assert "a part has 101 bytes: 1 to 100 are possible" in refusal(BEGIN + framed(b"H" * 101)[:12])


def test_the_sum_is_over_what_no_digest_has() -> None:  # 2
    data = exported([ONE])
    at = data.index(encode_entries(ONE))
    expiring = encode_entries([(b"a", pack_entry(b"v", 0, 0, 1, 5))])
    changed = data[: at - 12] + framed(expiring) + data[at + len(expiring) :]
    assert "the SHA-256 at the end does not fit what is before it" in refusal(changed)


def test_a_partition_that_begins_again_leaves_nothing_of_the_first_time() -> None:
    writer = ExportWriter()
    data = writer.begin(ExportHead("settings", 1, 1_700_000_000_000))
    mark = writer.mark()
    for _ in range(2):
        writer.partition(partition(0, ONE, 3))
        writer.entries(encode_entries(ONE))
        writer.back_to(mark)
    data += writer.partition(partition(0, ONE)) + writer.entries(encode_entries(ONE)) + writer.end()
    assert data == exported([ONE])
    assert writer.size_bytes == len(data)


@given(st.binary(max_size=60) | st.builds(lambda kind, data: kind + data, st.sampled_from([b"E", b"O"]), st.binary()))
def test_a_part_of_a_snapshot_is_decoded_or_refused(payload: bytes) -> None:
    try:
        entries, operations = decode_part(payload)
    except SnapshotDamaged:
        return
    TableDigest().add(entries)
    assert all(len(operation) == 7 for operation in operations)


scalar = st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.binary(max_size=40) | st.text(max_size=5)
any_value = scalar | st.lists(scalar | st.lists(scalar, max_size=8), max_size=8)


@given(any_value)
def test_other_content_of_a_part_or_a_record_is_refused(content: object) -> None:
    packed = msgpack.packb(content)
    for kind in (b"E", b"O"):
        try:
            decode_part(kind + packed)
        except SnapshotDamaged:
            continue
        assert isinstance(content, list)
    with pytest.raises(SnapshotDamaged):
        SnapshotRecord.decode(packed)


def test_the_digest_of_contents_has_no_order_and_no_revisions() -> None:
    digests = [ContentDigest(), ContentDigest()]
    pairs = [(key, b"value of " + key) for key in KEYS]
    for digest, each in zip(digests, (pairs, reversed(pairs)), strict=True):
        for key, value in each:
            digest.add(key, value)
    assert digests[0].digest() == digests[1].digest()
    other = ContentDigest()
    other.add(b"a", b"bc")
    moved = ContentDigest()
    moved.add(b"ab", b"c")
    assert other.digest() != moved.digest()
