"""The store of tables that flushes as in production, and the check of its state after a power failure."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import msgpack
import trio
from recorded_commits import (
    MAP_BYTES,
    BadState,
    Check,
    check_content,
    contents_by_transaction,
    image_folder,
    main,
    opened,
    read_content,
)

from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.stored import store_forms as forms
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.stored.store_forms import TablePosition
from gnomon.log.entry import Offset
from gnomon.log.tables.key_entry import NEVER, numbers_of, pack_entry
from gnomon.log.tables.table_digest import TableDigest
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Durability, Environment, World
from gnomon.testing.simulation.disk.crash_states import CrashState
from gnomon.testing.simulation.disk.write_log import Event, Mark, Marks

FLUSHES = 40
KEYS = 300
SIZES_BYTES = (5, 50, 50, 400, 3000)
RECORD_KEY = b"p of the one table"


def _open(world: World, folder: Path) -> Environment:
    return world.disk.open_environment(
        folder, databases=forms.DATABASES, map_bytes=MAP_BYTES, durability=Durability.SYNCED
    )


def _digest(entries: dict[bytes, bytes]) -> bytes:
    digest = TableDigest()
    digest.add(sorted(entries.items()))
    return digest.digest()


async def _record(folder: Path, seed: int) -> None:
    """Changes keys, and flushes; at times an image is read meanwhile, which notes entries."""
    stream = random.Random(seed)
    async with open_trio_world() as world:
        environment = _open(world, folder)
        engine = DiskEngine(environment, RECORD_KEY, 1, TablesMemory(1 << 40), None)
        marks, model, applied = Marks(), dict[bytes, bytes](), 0
        marks.add(msgpack.packb(["opened"]))
        for number in range(FLUSHES):
            await engine.prepare_image()
            image = engine.begin_image() if number % 3 == 0 else None
            for _ in range(stream.choice((1, 5, 40, 150))):
                key = b"key %d" % stream.randrange(KEYS)
                applied += 1
                if stream.random() < 0.2:
                    model.pop(key, None)
                    engine.delete(key, engine.get(key))
                else:
                    expires_ms = stream.choice((NEVER, NEVER, stream.randrange(1 << 40)))
                    value = stream.randbytes(stream.choice(SIZES_BYTES))
                    model[key] = pack_entry(value, applied, 1, 1, expires_ms)
                    engine.put(key, model[key], engine.get(key))
            engine.begin_flush({})
            marks.add(msgpack.packb(["flushing", applied, _digest(model)]))
            for _ in await engine.flush(Offset(applied), b"%d" % applied):
                pass
            marks.add(msgpack.packb(["flushed", applied]))
            if image is not None:
                image.close()
        environment.close()


class History:
    """The flushes before the power failure; moves forward only."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._at = 0
        self.digests: dict[int, bytes] = {}
        self.flushed = 0

    def advance(self, end: int) -> None:
        """Processes the marks among the first `end` events."""
        for event in self._events[self._at : end]:
            if isinstance(event, Mark):
                match msgpack.unpackb(event.text):
                    case ["flushing", applied, digest]:
                        self.digests[applied] = digest
                    case ["flushed", applied]:
                        self.flushed = applied
        self._at = max(self._at, end)


async def _check(folder: Path, history: History) -> None:
    async with open_trio_world() as world:
        environment = _open(world, folder)
        position = _position(environment)
        if position is None:
            if history.flushed:
                raise BadState("a flush that was completed has left nothing")
        else:
            _check_entries(environment, position, history)
        environment.close()


def _position(environment: Environment) -> TablePosition | None:
    with environment.read() as transaction:
        stored = transaction.get(RECORD_KEY, db=environment.databases[forms.TABLES])
        return None if stored is None else forms.decode_table(forms.unseal(RECORD_KEY, stored))[1]


def _check_entries(environment: Environment, position: TablePosition, history: History) -> None:
    if position.applied < history.flushed:
        raise BadState(f"the position is {position.applied}, and a flush to {history.flushed} was completed")
    if position.record != b"%d" % position.applied:
        raise BadState("the identity of the last batch is another one's")
    engine = DiskEngine(environment, RECORD_KEY, 1, TablesMemory(1 << 40), position)
    with closing(engine.scan(b"", None)) as found:
        entries = dict(found)
    if _digest(entries) != history.digests[position.applied] or len(entries) != position.keys:
        raise BadState(f"the entries are not those at the position {position.applied}")
    expected = {(numbers_of(packed)[3], key) for key, packed in entries.items() if numbers_of(packed)[3] != NEVER}
    with environment.read() as transaction:
        rows = transaction.cursor(environment.databases[forms.EXPIRIES]).iternext(values=False)
        if {forms.expiry_of(row) for row in rows} != expected:
            raise BadState("the rows of expiries are not those of the entries")


def checker(events: list[Event], folder: Path) -> Check:
    """Makes the check of a recorded run."""
    contents = contents_by_transaction(events, folder, forms.DATABASES)
    history = History(events)

    def check(state: CrashState) -> None:
        history.advance(state.after)
        path = image_folder(state.image, folder)
        with opened(path, forms.DATABASES) as (lmdb, handles):
            check_content(contents, read_content(lmdb, handles))
        trio.run(_check, path, history)

    return check


if __name__ == "__main__":
    main(lambda folder, seed: trio.run(_record, folder, seed), checker)
