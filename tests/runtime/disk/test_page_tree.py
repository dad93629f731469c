"""Keys are looked up in an LMDB file without LMDB (numbers: invariants of `page_tree`)."""

from __future__ import annotations

import os
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from gnomon.runtime.disk.page_tree import DamagedKeys, KeyGap, PageTree, page_tree

FLIPS = 60


class Store:
    """An LMDB file that is open, with one database."""

    def __init__(self, path: Path) -> None:
        self.environment = lmdb.open(str(path), map_size=1 << 28, max_dbs=2, sync=False)
        self.database = self.environment.open_db(b"entries")
        self.page_bytes: int = self.environment.stat()["psize"]
        self.file = path / "data.mdb"

    def fill(self, stream: random.Random, keys: int, transactions: int) -> None:
        """Random puts and deletes."""
        for _ in range(transactions):
            with self.environment.begin(write=True, db=self.database) as transaction:
                for _ in range(keys):
                    transaction.put(stream.randbytes(16), stream.randbytes(stream.choice([0, 10, 500, 9_000])))
                with transaction.cursor() as cursor:
                    for _ in range(keys // 2):
                        if cursor.set_range(stream.randbytes(16)):
                            cursor.delete()

    def keys(self) -> list[bytes]:
        with self.environment.begin(db=self.database) as transaction:
            return list(transaction.cursor().iternext(values=False))

    def transaction(self) -> int:
        with self.environment.begin() as transaction:
            return int(transaction.id())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.environment.close()


def reader(data: bytes | bytearray) -> Callable[[int, int], bytes]:
    return lambda at, count: bytes(data[at : at + count])


def tree_of(store: Store, data: bytes | bytearray) -> PageTree:
    return page_tree(reader(data), store.transaction(), store.page_bytes, "entries")


def expected(keys: list[bytes], key: bytes) -> KeyGap:
    low, high = bisect_left(keys, key), bisect_right(keys, key)
    return KeyGap(keys[low - 1] if low else None, low < high, keys[high] if high < len(keys) else None)


def walk(tree: PageTree) -> int:
    """Checks every leaf; returns their number."""
    key, leaves = b"", 0
    while True:
        leaf = tree.check_leaf(key)
        leaves += 1
        if leaf.next_key is None:
            return leaves
        assert leaf.next_key > key
        key = leaf.next_key


def test_the_neighbours_of_a_key_are_those_that_lmdb_has(store: Store) -> None:
    assert tree_of(store, store.file.read_bytes()).gap(b"any") == KeyGap(None, False, None)
    stream = random.Random(1)
    store.fill(stream, 60, 8)
    keys, tree = store.keys(), tree_of(store, store.file.read_bytes())
    for key in [b"", b"\xff" * 16, *keys, *(stream.randbytes(16) for _ in range(200))]:
        assert tree.gap(key) == expected(keys, key)
    with store.environment.begin() as transaction:
        assert walk(tree) == transaction.stat(store.database)["leaf_pages"]


def test_an_absent_key_is_not_believed_on_the_word_of_a_damaged_page(store: Store) -> None:
    """2, 3, 4. Every key is found, or damage is; except the one key whose own bits are flipped."""
    stream = random.Random(2)
    store.fill(stream, 60, 8)
    keys, sound = store.keys(), store.file.read_bytes()
    tree_pages = [at for at in range(8192, len(sound), store.page_bytes) if sound[at + 10] in (1, 2)]
    found = 0
    for _ in range(FLIPS):
        data = bytearray(sound)
        bit = 8 * (stream.choice(tree_pages) + stream.randrange(stream.choice([64, 4096]))) + stream.randrange(8)
        data[bit // 8] ^= 1 << bit % 8
        absent = []
        try:
            tree = tree_of(store, data)
            absent = [key for key in keys[:: stream.randint(2, 4)] if not tree.gap(key).here]
        except DamagedKeys:
            found += 1
        assert len(absent) <= 1
    assert found > FLIPS // 20


def test_a_separator_that_leads_to_the_wrong_leaf_is_found(store: Store) -> None:
    """3. The leaf itself is sound."""
    store.fill(random.Random(3), 60, 8)
    keys, data = store.keys(), bytearray(store.file.read_bytes())
    leaf = tree_of(store, data).check_leaf(keys[len(keys) // 2])
    separator = leaf.next_key
    assert separator is not None
    hidden = keys[bisect_left(keys, separator)]
    raised = hidden[:-1] + bytes([min(255, hidden[-1] + 1)])
    at = 0
    while (at := data.find(separator, at)) >= 0:
        if data[at - 2 : at] == len(separator).to_bytes(2, "little") and _is_branch(data, at):
            data[at : at + len(separator)] = raised[: len(separator)].ljust(len(separator), b"\xff")
        at += 1
    with pytest.raises(DamagedKeys):
        tree_of(store, data).gap(hidden)
    with pytest.raises(DamagedKeys):
        walk(tree_of(store, data))


def _is_branch(data: bytearray, at: int) -> bool:
    return bool(data[at // 4096 * 4096 + 10] & 1)


def test_a_tree_stays_readable_while_lmdb_writes_and_a_read_transaction_is_open(store: Store) -> None:
    """1."""
    stream = random.Random(4)
    store.fill(stream, 60, 4)
    descriptor = os.open(store.file, os.O_RDONLY)

    def read(at: int, count: int) -> bytes:
        return os.pread(descriptor, count, at)

    with store.environment.begin() as transaction:
        keys = store.keys()
        tree = page_tree(read, transaction.id(), store.page_bytes, "entries")
        for _ in range(10):
            store.fill(stream, 60, 1)
        assert [key for key in keys if not tree.gap(key).here] == []
        newer = page_tree(read, transaction.id(), store.page_bytes, "entries")
        for _ in range(10):
            store.fill(stream, 60, 1)
        walk(tree)
        walk(newer)
    os.close(descriptor)


def test_random_bytes_over_sound_pages_raise_nothing_else(store: Store) -> None:
    """4."""
    stream = random.Random(5)
    store.fill(stream, 60, 4)
    keys, sound = store.keys(), store.file.read_bytes()
    for _ in range(200):
        data = bytearray(sound)
        at = stream.randrange(len(data) - 64)
        data[at : at + 64] = stream.randbytes(64)
        try:
            tree = tree_of(store, data)
            tree.gap(stream.choice(keys))
            walk(tree)
        except DamagedKeys:
            continue


@pytest.mark.parametrize("lost", [1, 7])
def test_a_page_that_lost_references_to_its_nodes_is_damaged(store: Store, lost: int) -> None:
    """2. LMDB finds none of the records whose references are lost; all other ones are in order."""
    store.fill(random.Random(6), 60, 8)
    keys, data = store.keys(), bytearray(store.file.read_bytes())
    leaf = tree_of(store, data).check_leaf(keys[len(keys) // 2])
    assert leaf.next_key is not None
    hidden = keys[bisect_left(keys, leaf.next_key) - 1]
    for page in range(2 * store.page_bytes, len(data), store.page_bytes):
        if data[page + 10] == 2 and hidden in data[page : page + store.page_bytes]:
            lower = int.from_bytes(data[page + 12 : page + 14], "little")
            data[page + 12 : page + 14] = (lower - 2 * lost).to_bytes(2, "little")
    with pytest.raises(DamagedKeys, match="bytes of nodes"):
        tree_of(store, data).gap(hidden)
