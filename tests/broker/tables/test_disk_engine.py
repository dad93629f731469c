"""The entries of a table on disk: what is in the store, and the changes over it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

from lmdb_environment import LmdbEnvironment, run

from gnomon.broker.tables.engines.memory_engine import prefix_end
from gnomon.broker.tables.engines.table_image import TableImage
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.recent_operations import DoneOperation
from gnomon.broker.tables.stored import store_forms as forms
from gnomon.broker.tables.stored.disk_engine import COUNTED_AT_ONCE, DiskEngine
from gnomon.broker.tables.stored.store_forms import RowDamaged, TablePosition
from gnomon.log.entry import Offset
from gnomon.log.tables.key_entry import NEVER, numbers_of, pack_entry
from gnomon.runtime.world import DiskFull

KEYS = st.binary(max_size=2) | st.sampled_from([b"\xff" * 500, b"\xff" * 499, b"\0" * 500])
EXPIRIES = st.just(NEVER) | st.integers(0, 9)
RECORD_KEY = b"p of a test"
OPERATION = (b"w" * 16, 7)
DONE = (3, DoneOperation(Offset(1), Offset(2), 5, True, None))


class DiskEngineMachine(RuleBasedStateMachine):
    """One table beside an ordinary dictionary; an image is compared with a copy of that."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.environment = LmdbEnvironment(self.folder)
        self.engine = DiskEngine(self.environment, RECORD_KEY, 1, TablesMemory(1), None)
        self.model: dict[bytes, bytes] = {}
        self.flushed: dict[bytes, bytes] = {}
        self.flushing: dict[bytes, bytes] | None = None
        self.applied = 0
        self.image: TableImage | None = None
        self.imaged: dict[bytes, bytes] = {}
        self.pages: list[tuple[bytes, bytes]] = []

    @rule(key=KEYS, value=st.binary(max_size=3), expires_ms=EXPIRIES)
    def put(self, key: bytes, value: bytes, expires_ms: int) -> None:
        self.applied += 1
        self.model[key] = pack_entry(value, self.applied, 1, 1, expires_ms)
        self.engine.put(key, self.model[key], self.engine.get(key))

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.applied += 1
        self.model.pop(key, None)
        self.engine.delete(key, self.engine.get(key))

    @precondition(lambda self: self.flushing is None)
    @rule()
    def begin_flush(self) -> None:
        self.engine.begin_flush({})
        self.flushing, self.position = dict(self.model), self.applied

    @precondition(lambda self: self.flushing is not None)
    @rule(full=st.booleans())
    def flush(self, full: bool) -> None:
        self.environment.full = full
        if full:
            with pytest.raises(DiskFull):
                run(self.engine.flush(Offset(self.position), b"record"))
        else:
            for _ in run(self.engine.flush(Offset(self.position), b"record")):
                pass
            assert self.flushing is not None
            self.flushed, self.flushing = self.flushing, None
        self.environment.full = False

    @rule()
    def restart(self) -> None:
        """The process is killed: what was not flushed is lost, and comes again from the log."""
        stored = self.stored_position()
        self.engine = DiskEngine(self.environment, RECORD_KEY, 1, TablesMemory(1), stored)
        self.model, self.flushing, self.image = dict(self.flushed), None, None
        run(self.engine.prepare_image())

    def stored_position(self) -> TablePosition | None:
        with self.environment.read() as transaction:
            stored = transaction.get(RECORD_KEY, db=self.environment.databases[forms.TABLES])
            return None if stored is None else forms.decode_table(forms.unseal(RECORD_KEY, stored))[1]

    @precondition(lambda self: self.image is None)
    @rule()
    def begin_image(self) -> None:
        run(self.engine.prepare_image())
        self.image, self.imaged, self.pages = self.engine.begin_image(), dict(self.model), []

    @precondition(lambda self: self.image is not None)
    @rule(count=st.integers(1, 3), bytes_max=st.sampled_from([1, 1_000]))
    def read_page(self, count: int, bytes_max: int) -> None:
        assert self.image is not None
        self.pages += self.image.page(count, bytes_max)
        if self.image.is_read:
            assert self.pages == sorted(self.imaged.items())
            self.image.close()
            self.image = None

    @precondition(lambda self: self.image is not None)
    @rule()
    def give_up_image(self) -> None:
        assert self.image is not None
        self.image.close()
        self.image = None

    @invariant()
    def everything_is_found(self) -> None:
        assert {key: self.engine.get(key) for key in self.model} == self.model
        with closing(self.engine.scan(b"", None)) as found:
            assert list(found) == sorted(self.model.items())
        prefix = b"\xff"
        expected = sorted(key for key in self.model if key.startswith(prefix))
        with closing(self.engine.scan(prefix, prefix_end(prefix))) as found:
            assert [key for key, _ in found] == expected
        assert self.engine.count(prefix, prefix_end(prefix)) == (len(expected), None)

    @invariant()
    def keys_and_bytes_are_counted(self) -> None:
        assert len(self.engine) == len(self.model)
        assert self.engine.bytes_used == sum(len(key) + len(packed) for key, packed in self.model.items())

    @invariant()
    def the_keys_that_expire_are_known_by_their_time(self) -> None:
        expiries = sorted((numbers_of(packed)[3], key) for key, packed in self.model.items())
        expiring = [(expires_ms, key) for expires_ms, key in expiries if expires_ms != NEVER]
        assert self.engine.next_expiry_ms == (expiring[0][0] if expiring else None)
        assert self.engine.expiring(5, 100) == [key for expires_ms, key in expiring if expires_ms <= 5]

    @invariant()
    def the_store_has_what_was_flushed_and_its_position(self) -> None:
        rows = {}
        with self.environment.read() as transaction:
            for row, stored in transaction.cursor(self.environment.databases[forms.ENTRIES]):
                key = bytes(row[forms.NUMBER_BYTES :])
                rows[key] = forms.unseal(key, stored)
        assert rows == self.flushed

    def teardown(self) -> None:
        self.environment.close()
        shutil.rmtree(self.folder)


TestDiskEngine = DiskEngineMachine.TestCase
TestDiskEngine.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


def new_engine(folder: Path) -> tuple[LmdbEnvironment, DiskEngine]:
    environment = LmdbEnvironment(folder)
    return environment, DiskEngine(environment, RECORD_KEY, 1, TablesMemory(1), None)


def flush(engine: DiskEngine) -> None:
    engine.begin_flush({})
    for _ in run(engine.flush(Offset(1), None)):
        pass


def test_a_damaged_entry_is_never_taken_for_good(tmp_path: Path) -> None:
    environment, engine = new_engine(tmp_path)
    engine.put(b"k", pack_entry(b"value", 1, 1, 1, NEVER), None)
    flush(engine)
    row = forms.number_key(1) + b"k"
    with environment.lmdb.begin(write=True, db=environment.databases[forms.ENTRIES]) as transaction:
        stored = bytearray(transaction.get(row))
        stored[40] ^= 1
        transaction.put(row, bytes(stored))
    with pytest.raises(RowDamaged):
        engine.get(b"k")
    with pytest.raises(RowDamaged), closing(engine.scan(b"", None)) as found:
        next(found)


def test_a_table_does_not_see_the_rows_of_its_neighbours(tmp_path: Path) -> None:
    environment, engine = new_engine(tmp_path)
    others = [DiskEngine(environment, b"p%d" % number, number, TablesMemory(1), None) for number in (0, 2)]
    for other in others:
        other.put(b"k", pack_entry(b"other", 1, 1, 1, 5), None)
        flush(other)
    assert (engine.get(b"k"), engine.next_expiry_ms, engine.count(b"", b"z")) == (None, None, (0, None))
    with closing(engine.scan(b"", None)) as found:
        assert list(found) == []


@pytest.mark.parametrize("expires_ms", [NEVER, 9, None])
def test_the_expiry_of_a_stored_value_goes_when_it_is_replaced_or_deleted(
    tmp_path: Path, expires_ms: int | None
) -> None:
    environment, engine = new_engine(tmp_path)
    engine.put(b"k", pack_entry(b"old", 1, 1, 1, 5), None)
    flush(engine)
    if expires_ms is None:
        engine.delete(b"k", engine.get(b"k"))
    else:
        engine.put(b"k", pack_entry(b"new", 2, 1, 2, expires_ms), engine.get(b"k"))
    flush(engine)
    with environment.read() as transaction:
        rows = [bytes(row) for row, _ in transaction.cursor(environment.databases[forms.EXPIRIES])]
    assert rows == ([forms.expiry_row(1, 9, b"k")] if expires_ms == 9 else [])
    assert engine.next_expiry_ms == (9 if expires_ms == 9 else None)


def test_many_keys_are_counted_in_several_turns(tmp_path: Path) -> None:
    _, engine = new_engine(tmp_path)
    for number in range(COUNTED_AT_ONCE + 5):
        engine.put(b"k%06d" % number, pack_entry(b"", 1, 1, 1, NEVER), None)
    number, rest = engine.count(b"k", b"l")
    assert (number, rest) == (COUNTED_AT_ONCE, b"k%06d" % COUNTED_AT_ONCE)
    assert engine.count(rest or b"", b"l") == (5, None)


def test_numbered_operations_are_stored_until_they_are_forgotten(tmp_path: Path) -> None:
    environment, engine = new_engine(tmp_path)
    for change in (DONE, None):
        engine.put(b"k", pack_entry(b"", 1, 1, 1, NEVER), engine.get(b"k"))
        engine.begin_flush({OPERATION: change})
        for _ in run(engine.flush(Offset(1), None)):
            pass
        with environment.read() as transaction:
            cursor = transaction.cursor(environment.databases[forms.OPERATIONS])
            rows = [forms.decode_done(row, forms.unseal(row, value)) for row, value in cursor]
        assert [done for _, done in rows] == ([] if change is None else [DONE[1]])
