"""A damaged store keeps what can be read (numbers: invariants of `salvage`)."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from gnomon.runtime.disk.commit import check_file
from gnomon.runtime.disk.salvage import KEPT, salvage
from gnomon.runtime.world import DiskFailed

PAGE = 4096
NAMES = ("entries", "ledgers")
Records = dict[bytes, bytes]


def written(path: Path, count: int = 300) -> Records:
    """A store with small and large values."""
    records = {b"%05d" % number: b"value %d " % number * (1 + number % 7 * 100) for number in range(count)}
    path.mkdir()
    with lmdb.open(str(path), max_dbs=2, map_size=1 << 26) as environment:
        entries, ledgers = (environment.open_db(name.encode()) for name in NAMES)
        for key, value in records.items():
            with environment.begin(write=True) as transaction:
                transaction.put(key, value, db=entries)
                if key.endswith(b"0"):
                    transaction.put(key, b"fact", db=ledgers)
        with environment.begin(write=True) as transaction:
            transaction.put(b"age", b"7", db=ledgers)
    return records


def stored(path: Path, name: str) -> Records:
    with lmdb.open(str(path), max_dbs=2, readonly=True, lock=False) as environment:
        database = environment.open_db(name.encode(), create=False)
        with environment.begin(db=database) as transaction:
            return dict(transaction.cursor())


def zero(path: Path, page: int) -> None:
    with open(path / "data.mdb", "r+b") as file:
        file.seek(page * PAGE)
        file.write(bytes(PAGE))


def test_only_the_records_of_a_damaged_page_are_missing(tmp_path: Path) -> None:
    """1, 2."""
    path = tmp_path / "store"
    records = written(path)
    before = (path / "data.mdb").read_bytes()
    place = before.index(records[b"00142"]) // PAGE
    zero(path, place)
    damaged = (path / "data.mdb").read_bytes()
    with pytest.raises(DiskFailed, match="is damaged"):
        check_file(path)
    assert salvage(path, databases=NAMES, omit=(b"age",))
    check_file(path)
    left = stored(path, "entries")
    assert left.items() <= records.items()
    assert len(records) - 20 < len(left) < len(records)
    assert stored(path, "ledgers") == {b"%05d" % number: b"fact" for number in range(0, 300, 10)}
    assert (path / KEPT).read_bytes() == damaged


@pytest.mark.parametrize("page", [0, 1])
def test_a_damaged_page_that_describes_the_store_leaves_the_records_of_the_transaction_before(
    tmp_path: Path, page: int
) -> None:
    path = tmp_path / "store"
    records = written(path)
    zero(path, page)
    assert salvage(path, databases=NAMES, omit=())
    assert len(records) - 1 <= len(stored(path, "entries")) <= len(records)


def test_a_store_of_which_nothing_can_be_read_stays_as_it_is(tmp_path: Path) -> None:
    """1."""
    path = tmp_path / "store"
    written(path)
    for page in (0, 1):
        zero(path, page)
    before = (path / "data.mdb").read_bytes()
    assert not salvage(path, databases=NAMES, omit=())
    assert (path / "data.mdb").read_bytes() == before
    assert sorted(each.name for each in path.iterdir()) == ["data.mdb", "lock.mdb"]
