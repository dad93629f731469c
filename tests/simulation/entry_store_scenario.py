"""A bookie's entry store that commits as in production, and the check of its state after a power failure."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

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

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.errors import EntryShrunk, Fenced, NoSuchEntry
from gnomon.bookie.ids import ENTRY_MAX, SESSION_MAX, EntryId, LedgerId, SessionId
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.entry_store import DATABASES, EntryStore
from gnomon.runtime.disk.commit import commit_group
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import CommitCounts, Durability, WorldError
from gnomon.testing.simulation.disk.crash_states import CrashState
from gnomon.testing.simulation.disk.write_log import Event, Mark, Marks

ROUNDS = 60
LEDGERS = 4
ENTRIES_KEPT = 40
SIZES_BYTES = (10, 10, 200, 200, 900, 900, 2500, 6000)
BIG_BYTES = 40_000
"""The size of entries in a burst that exceeds the space allocated ahead."""
NEW_LEDGER = LedgerId(1000)

# --- the recorded run ---


class Workload:
    """Adds, fences, copies and removals; the write log has a mark at each request and at each answer."""

    def __init__(self, store: EntryStore, stream: random.Random) -> None:
        self._store = store
        self._random = stream
        self._marks = Marks()
        self._asked = 0
        self._waiting: set[int] = set()
        self._settled = trio.Event()
        self._sessions = {LedgerId(number): SessionId(1) for number in range(1, LEDGERS + 1)}
        self._bounds = {ledger: [(EntryId(0), session)] for ledger, session in self._sessions.items()}
        self._first = dict.fromkeys(self._sessions, 0)
        self._next = dict.fromkeys(self._sessions, 0)
        self._mark("opened")

    def _mark(self, *what: object) -> None:
        self._marks.add(msgpack.packb(what))

    def _ask(self, *what: object) -> Callable[[Any, Any], None]:
        number = self._asked
        self._asked += 1
        self._waiting.add(number)
        self._mark(what[0], number, *what[1:])

        def done(_result: Any, error: Exception | None) -> None:
            assert error is None, error
            self._mark("done", number)
            self._waiting.discard(number)
            if not self._waiting:
                self._settled.set()

        return done

    async def settled(self) -> None:
        while self._waiting:
            self._settled = trio.Event()
            await self._settled.wait()

    def _value(self, ledger: LedgerId, entry: EntryId, size_bytes: int) -> bytes:
        payload = self._random.randbytes(size_bytes)
        return encode_entry(ledger, entry, self._sessions[ledger], EntryId(max(entry - 1, 0)), size_bytes, [payload])

    def add(self, ledger: LedgerId, size_bytes: int) -> None:
        entry = EntryId(self._next[ledger])
        self._next[ledger] += 1
        value, session = self._value(ledger, entry, size_bytes), self._sessions[ledger]
        self._store.add(ledger, entry, session, entry, value, self._ask("add", ledger, entry, session, value))

    def add_some(self) -> None:
        for _ in range(self._random.choice((1, 2, 5, 15, 30))):
            self.add(self._random.choice(list(self._sessions)), self._random.choice(SIZES_BYTES))

    def fence(self, nursery: trio.Nursery) -> None:
        """Begins a session: fences the ledger, puts copies of the last entries, removes those that it excludes."""
        ledger = self._random.choice(list(self._sessions))
        session = self._sessions[ledger] = SessionId(self._sessions[ledger] + 1)
        self._store.fence(ledger, session, self._ask("fence", ledger, session))
        start = max(self._next[ledger] - self._random.randint(0, 4), self._first[ledger])
        copies = [(entry, self._value(ledger, entry, 300)) for entry in map(EntryId, range(start, start + 2))]
        if self._random.random() < 0.5:
            done = [self._ask("add", ledger, entry, session, value) for entry, value in copies]
            self._store.put_copies(ledger, session, copies, lambda _, error: [each(_, error) for each in done])
            start += 2
        bound = (EntryId(start), session)
        self._bounds[ledger].append(bound)
        nursery.start_soon(self._begin_session, ledger, session, start)
        self._next[ledger] = start

    async def _begin_session(self, ledger: LedgerId, session: SessionId, start: int) -> None:
        done = self._ask("remove", ledger, start, ENTRY_MAX, session)
        await self._store.begin_session(ledger, session, self._bounds[ledger])
        done(None, None)

    async def shrink(self) -> None:
        """Removes all except the last entries of the longest ledger."""
        ledger = max(self._sessions, key=lambda each: self._next[each] - self._first[each])
        end = self._first[ledger] = max(self._next[ledger] - ENTRIES_KEPT // LEDGERS, self._first[ledger])
        done = self._ask("remove", ledger, 0, end, SESSION_MAX)
        await self._store.shrink(ledger, EntryId(end))
        await self._store.remove(ledger)
        done(None, None)

    async def delete(self) -> None:
        ledger = self._random.choice(list(self._sessions))
        new = LedgerId(max(self._sessions) + 1)
        del self._sessions[ledger], self._first[ledger], self._next[ledger]
        self._sessions[new], self._first[new], self._next[new] = SessionId(1), 0, 0
        self._bounds[new] = [(EntryId(0), SessionId(1))]
        done = self._ask("delete", ledger)
        await self._store.delete(ledger)
        await self._store.remove(ledger)
        done(None, None)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(ROUNDS):
                self.add_some()
                if number % 5 == 1:
                    self.fence(nursery)
                if number % 4 == 2:
                    nursery.start_soon(self.shrink)
                if number % 15 == 8:
                    nursery.start_soon(self.delete)
                if number == ROUNDS // 2:
                    for _ in range(12):
                        self.add(max(self._sessions), BIG_BYTES)
                if self._random.random() < 0.7:
                    await self.settled()
                else:
                    await trio.lowlevel.checkpoint()
        await self.settled()


async def _record(folder: Path, seed: int) -> None:
    async with open_trio_world() as world:
        environment = world.disk.open_environment(
            folder, databases=DATABASES, map_bytes=MAP_BYTES, durability=Durability.SYNCED
        )
        await Workload(EntryStore(environment, world.clock), random.Random(seed)).run()


# --- the check of a state ---


class History:
    """The requests and answers before the power failure; moves forward only."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._at = 0
        self._asked: dict[int, list[Any]] = {}
        self.opened = False
        self.values: dict[tuple[int, int], list[bytes]] = {}
        """All values that were ever requested for a key, in order."""
        self.live: set[tuple[int, int]] = set()
        """Keys that may have a value."""
        self.kept: dict[tuple[int, int], int] = {}
        """Index of the last acknowledged value."""
        self.going: dict[tuple[int, int], int] = {}
        """Values below this index may have been removed."""
        self.gone: dict[tuple[int, int], int] = {}
        """Values below this index are known to be removed."""
        self.asked_promises: dict[int, int] = {}
        self.promises: dict[int, int] = {}

    def advance(self, end: int) -> None:
        """Processes the marks among the first `end` events."""
        for event in self._events[self._at : end]:
            if isinstance(event, Mark):
                kind, *rest = msgpack.unpackb(event.text)
                getattr(self, f"_{kind}")(*rest)
        self._at = max(self._at, end)

    def _opened(self) -> None:
        self.opened = True

    def _add(self, number: int, ledger: int, entry: int, session: int, value: bytes) -> None:
        values = self.values.setdefault((ledger, entry), [])
        self._asked[number] = ["add", (ledger, entry), len(values), session]
        values.append(value)
        self.live.add((ledger, entry))
        self._promise(self.asked_promises, ledger, session)

    def _fence(self, number: int, ledger: int, session: int) -> None:
        self._asked[number] = ["fence", ledger, session]
        self._promise(self.asked_promises, ledger, session)

    def _remove(self, number: int, ledger: int, first: int, end: int, below: int) -> None:
        bounds = {
            key: len(values)
            for key, values in self.values.items()
            if key[0] == ledger
            and first <= key[1] < end
            and (below == SESSION_MAX or removal.session_of(values[-1]) < below)
        }
        self.going.update(bounds)
        self._asked[number] = ["remove", bounds]

    def _delete(self, number: int, ledger: int) -> None:
        self._remove(number, ledger, 0, ENTRY_MAX, SESSION_MAX)
        self.promises.pop(ledger, None)
        self.asked_promises[ledger] = SESSION_MAX

    def _done(self, number: int) -> None:
        kind, *rest = self._asked.pop(number)
        if kind == "add":
            key, index, session = rest
            self.kept[key] = index
            self._promise(self.promises, key[0], session)
        elif kind == "fence":
            self._promise(self.promises, *rest)
        else:
            self.gone.update(rest[0])
            self.live -= {key for key, end in rest[0].items() if end == len(self.values[key])}

    def _promise(self, promises: dict[int, int], ledger: int, session: int) -> None:
        if self.asked_promises.get(ledger) != SESSION_MAX:
            promises[ledger] = max(session, promises.get(ledger, 0))


class DirectEnvironment:
    """An environment whose groups are committed by `flush`, in this thread, by the product's own commit."""

    def __init__(self, environment: Any, databases: dict[str, Any], path: Path) -> None:
        self.databases = databases
        self.counts = CommitCounts()
        self._environment, self._path = environment, path
        self._submitted: deque[tuple[Callable[[Any], Any], Callable[[Any, WorldError | None], None]]] = deque()

    def read(self) -> AbstractContextManager[Any]:
        read: AbstractContextManager[Any] = self._environment.begin(buffers=True)
        return read

    def submit(self, operation: Callable[[Any], Any], done: Callable[[Any, WorldError | None], None]) -> None:
        self._submitted.append((operation, done))

    def flush(self) -> None:
        group, self._submitted = self._submitted, deque()
        results = commit_group(self._environment, self._path, [operation for operation, _ in group])
        for (_, done), result in zip(group, results, strict=True):
            done(result, None)

    async def commit(self, operation: Callable[[Any], Any]) -> Any:
        return commit_group(self._environment, self._path, [operation])[0]

    def read_bytes(self, at: int, count: int) -> bytes:
        with open(self._path / "data.mdb", "rb") as file:
            return os.pread(file.fileno(), count, at)

    def file_bytes(self) -> int:
        return (self._path / "data.mdb").stat().st_size

    def close(self) -> None:
        pass


def check_entries(store: EntryStore, history: History) -> None:
    """Checks that each entry has its last acknowledged value or a later one, and is absent after its removal."""
    with store.view() as view:
        for key in history.live:
            values = history.values[key]
            kept, gone = history.kept.get(key, -1), history.gone.get(key, 0)
            try:
                stored = view.entry(LedgerId(key[0]), EntryId(key[1]))
            except (NoSuchEntry, EntryShrunk):
                if kept >= history.going.get(key, 0):
                    raise BadState(f"entry {key} was acknowledged and is lost") from None
            else:
                if bytes(stored.value) not in values[max(kept, gone, 0) :]:
                    raise BadState(f"entry {key} has another value than the last acknowledged one")


def check_promises(store: EntryStore, environment: DirectEnvironment, history: History) -> None:
    """Checks that each promise is at least the acknowledged one, and at most the highest requested one."""
    answers: list[tuple[int, object]] = []
    for ledger in history.promises:
        store.fence(LedgerId(ledger), SessionId(0), lambda _, error, ledger=ledger: answers.append((ledger, error)))
    environment.flush()
    assert len(answers) == len(history.promises)
    for ledger, error in answers:
        promised = error.promised if isinstance(error, Fenced) else 0
        if not history.promises[ledger] <= promised <= history.asked_promises[ledger]:
            raise BadState(f"ledger {ledger} promises {promised} instead of {history.promises[ledger]}")


def go_on(store: EntryStore, environment: DirectEnvironment) -> None:
    """Uses up free pages, frees others and uses them again, to find pages that are in use and in the free list."""
    new: dict[tuple[LedgerId, EntryId], bytes] = {}
    acknowledged: list[EntryId] = []
    for step in range(4):
        ledger = LedgerId(NEW_LEDGER + step)
        for entry, size_bytes in enumerate((50, 3000, 9000, 900, 900, 900, 900, 20_000)):
            value = encode_entry(ledger, EntryId(entry), SessionId(1), EntryId(0), 0, [bytes([step + 1]) * size_bytes])
            new[ledger, EntryId(entry)] = value
            store.add(
                ledger, EntryId(entry), SessionId(1), EntryId(0), value,
                lambda entry, error: acknowledged.append(entry) if error is None else None,
            )  # fmt: skip
        environment.flush()
        if step == 1:
            _at_once(store.shrink(NEW_LEDGER, ENTRY_MAX))
            _at_once(store.remove(NEW_LEDGER))
    if len(acknowledged) != len(new):
        raise BadState("the store accepts no more entries")
    with store.view() as view:
        for (ledger, entry), value in new.items():
            if ledger != NEW_LEDGER and bytes(view.entry(ledger, entry).value) != value:
                raise BadState(f"entry {entry} of ledger {ledger}, added after the crash, holds another value")


def _at_once(call: Any) -> None:
    """Runs an async function that does not wait."""
    try:
        call.send(None)
    except StopIteration:
        return
    raise AssertionError("the commit was not made at once")


def checker(events: list[Event], folder: Path) -> Check:
    """Makes the check of a recorded run."""
    contents = contents_by_transaction(events, folder, DATABASES)
    history = History(events)

    def check(state: CrashState) -> None:
        history.advance(state.after)
        path = image_folder(state.image, folder)
        with opened(path, DATABASES) as (lmdb, handles):
            found = read_content(lmdb, handles)
            check_content(contents, found)
            stray = {removal.ENTRY_KEY.unpack(key) for key, _ in found[1][0]} - history.live
            if stray:
                raise BadState(f"entries that were never added, or were removed: {sorted(stray)[:3]}")
            environment = DirectEnvironment(lmdb, handles, path)
            no_clock: Any = None  # commits are direct: nothing waits
            store = EntryStore(environment, no_clock)
            check_entries(store, history)
            check_promises(store, environment, history)
            go_on(store, environment)
            check_entries(store, history)
            if read_content(lmdb, handles)[1][0][: len(found[1][0])] != found[1][0]:
                raise BadState("later adds changed earlier entries")

    return check


if __name__ == "__main__":
    main(lambda folder, seed: trio.run(_record, folder, seed), checker)
