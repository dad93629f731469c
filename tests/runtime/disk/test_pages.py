"""Damage to the pages of an LMDB file is found without LMDB (numbers: invariants of `pages`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest

from gnomon.runtime.disk.page import DamagedPage
from gnomon.runtime.disk.pages import check_pages

FLIPS = 400
Read = Callable[[int, int], bytes]


def fill(path: Path, stream: random.Random, transactions: int) -> bytes:
    """The file of an environment after random puts and deletes."""
    environment = lmdb.open(str(path), map_size=1 << 28, max_dbs=2, sync=False)
    large, small = (environment.open_db(name) for name in (b"large", b"small"))
    for _ in range(transactions):
        with environment.begin(write=True) as transaction:
            for _ in range(40):
                value = stream.randbytes(stream.choice([0, 10, 500, 3_000, 9_000]))
                transaction.put(stream.randbytes(16), value, db=large)
                transaction.put(stream.randbytes(stream.randint(1, 60)), b"", db=small)
            cursor = transaction.cursor(db=large)
            for _ in range(20):
                if cursor.set_range(stream.randbytes(16)):
                    cursor.delete()
    environment.close()
    return (path / "data.mdb").read_bytes()


def reader(data: bytes | bytearray) -> Read:
    return lambda at, count: bytes(data[at : at + count])


@pytest.mark.parametrize("transactions", [0, 1, 2, 3, 60])
def test_a_sound_file_has_no_damage(tmp_path: Path, transactions: int) -> None:
    data = fill(tmp_path, random.Random(transactions), transactions)
    checked = check_pages(reader(data))
    assert checked >= min(transactions, 1)
    assert check_pages(reader(data), pages_max=2) == min(checked, 2)


def contents(path: Path) -> dict[bytes, list[tuple[bytes, bytes]]]:
    with lmdb.open(str(path), max_dbs=2, readonly=True, lock=False) as environment:
        found = {}
        for name in (b"large", b"small"):
            database = environment.open_db(name, create=False)
            with environment.begin(db=database) as transaction:
                found[name] = list(transaction.cursor())
        return found


def test_a_flipped_bit_is_found_or_leaves_every_key_in_its_place(tmp_path: Path) -> None:
    """1, 2, 3. Bits of values, and of pages that are not used, are not seen here: entries have digests of their own."""
    stream = random.Random(7)
    data = fill(tmp_path / "sound", stream, 6)
    before = contents(tmp_path / "sound")
    (tmp_path / "flipped").mkdir()
    found = 0
    for _ in range(FLIPS):
        flipped = bytearray(data)
        at = stream.randrange(len(flipped))
        if stream.random() < 0.5:
            at = at // 4096 * 4096 + stream.randrange(64)  # more often in what describes a page
        bit = 8 * at + stream.randrange(8)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            check_pages(reader(flipped))
        except DamagedPage:
            found += 1
            continue
        (tmp_path / "flipped" / "data.mdb").write_bytes(flipped)
        after = contents(tmp_path / "flipped")  # LMDB can be trusted with a file that was checked
        for name, records in before.items():
            moved = sum(1 for (was, _), (now, _) in zip(records, after[name], strict=True) if was != now)
            assert moved <= 1
    assert found > FLIPS // 20


def found_damaged(data: bytes, at: int, bit: int) -> bool:
    flipped = bytearray(data)
    flipped[at] ^= 1 << bit
    try:
        check_pages(reader(flipped))
    except DamagedPage:
        return True
    return False


def test_every_bit_of_the_type_of_a_used_page_and_of_a_node_is_checked(tmp_path: Path) -> None:
    """1. LMDB takes a page of the type "dirty" for one that it may write to."""
    data = fill(tmp_path, random.Random(11), 4)
    used = [page for page in range(len(data) // 4096) if found_damaged(data, page * 4096, 0)]
    kinds = {data[page * 4096 + 10] for page in used}
    assert kinds == {1, 2, 4, 8}
    for page in used:
        for bit in range(16):
            assert found_damaged(data, page * 4096 + 10 + bit // 8, bit % 8), f"page {page}, bit {bit} of its type"
        if data[page * 4096 + 10] == 2:
            node = page * 4096 + int.from_bytes(data[page * 4096 + 16 : page * 4096 + 18], "little")
            for bit in range(16):
                assert found_damaged(data, node + 4 + bit // 8, bit % 8), f"page {page}, bit {bit} of its first node"


@pytest.mark.parametrize("page", [0, 1])
def test_a_meta_page_of_another_transaction_is_found(tmp_path: Path, page: int) -> None:
    """3."""
    data = bytearray(fill(tmp_path, random.Random(3), 5))
    at = page * 4096 + 16 + 24 + 2 * 48 + 8
    for bit in range(64):
        flipped = bytearray(data)
        flipped[at + bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedPage, match="transaction"):
            check_pages(reader(flipped))


def test_bytes_that_are_no_file_of_lmdb_raise_nothing_else() -> None:
    """5."""
    stream = random.Random(1)
    for size in (0, 10, 4096, 8192, 100_000):
        with pytest.raises(DamagedPage):
            check_pages(reader(stream.randbytes(size)))


def test_random_bytes_over_sound_pages_raise_nothing_else(tmp_path: Path) -> None:
    """5."""
    stream = random.Random(2)
    data = fill(tmp_path, stream, 4)
    for _ in range(200):
        damaged = bytearray(data)
        at = stream.randrange(len(damaged) - 64)
        damaged[at : at + 64] = stream.randbytes(64)
        with suppress(DamagedPage):
            check_pages(reader(damaged))
