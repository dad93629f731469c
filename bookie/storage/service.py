"""Serves one bookie's entry store to other processes.

Every argument is checked here: no input of a peer stops the bookie. A call whose session the metadata may not have
given waits for a check (`session_bound`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

import trio

from gnomon.bookie.bookie import PRESENT_ENTRIES_MAX, Bounds, Confirmed, StoreError
from gnomon.bookie.entry import HEADER_BYTES, session_of
from gnomon.bookie.errors import (
    InvalidCall,
)
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, SessionId
from gnomon.bookie.protocol import ADDS_MAX, ERRORS
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.session_bound import SessionBound
from gnomon.runtime.loop.turn_watch import work_for
from gnomon.runtime.rpc.call import CALL_BYTES_MIN, Call, Method, in_task
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Buffer

WAIT_SECONDS: Final = 4.0
"""Seconds that a call waits for a last add confirmed before it answers; shorter than callers wait for the answer."""
RANGE_BYTES_MAX: Final = 8 << 20
RANGE_ENTRIES_MAX: Final = 4096
_NUMBER_MAX: Final = 2**63 - 1
_LEDGER_AND_SESSION: Final = itemgetter(0, 2)
"""Of an add."""


class BookieService:
    """The methods of the service; calls that wait run in `tasks`."""

    def __init__(self, store: EntryStore, tasks: Tasks, sessions: SessionBound) -> None:
        self._store, self._tasks, self._sessions = store, tasks, sessions
        self._wait = in_task(tasks, self._news)

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "add": self._add,
            "add_many": self._add_many,
            "confirm": self._confirm,
            "put_copies": self._put_copies,
            "begin_session": self._begin_session,
            "fence": self._fence,
            "read": self._read,
            "read_range": self._read_range,
            "present": self._present,
            "last_add_confirmed": self._last_add_confirmed,
            "wait_for_lac": self._wait_for_lac,
            "shrink": in_task(self._tasks, self._shrink),
            "delete": in_task(self._tasks, self._delete),
            "file_bytes": self._file_bytes,
            "some_ledgers": self._some_ledgers,
        }

    def _add(self, call: Call) -> None:
        ledger, entry, session, confirmed = _numbers(call, 4, last_min=NO_ENTRY)
        value = _value(call.attachment, session)
        if not self._sessions.allows(ledger, session):
            self._check(call, self._add, [(ledger, session)])
            return

        def done(_entry: EntryId, error: StoreError | None) -> None:
            if error is None:
                call.reply()
            else:
                call.fail(error)

        self._store.add(LedgerId(ledger), EntryId(entry), SessionId(session), EntryId(confirmed), value, done)

    def _add_many(self, call: Call) -> None:
        adds = _adds(call)  # all are checked before the first is stored
        given = set(map(_LEDGER_AND_SESSION, adds))
        for ledger, session in given:
            if not self._sessions.allows(ledger, session):
                self._check(call, self._add_many, given)
                return
        call.charge(len(adds) * CALL_BYTES_MIN)
        answer = AddsAnswer(call, len(adds))
        for index, (ledger, entry, session, confirmed, value) in enumerate(adds):
            self._store.add(
                LedgerId(ledger),
                EntryId(entry),
                SessionId(session),
                EntryId(confirmed),
                value,
                partial(answer.added, index),
            )

    def _confirm(self, call: Call) -> None:
        ledger, session, confirmed = _numbers(call, 3, last_min=NO_ENTRY)
        self._store.confirm(LedgerId(ledger), SessionId(session), EntryId(confirmed))
        call.reply()

    def _put_copies(self, call: Call) -> None:
        if len(call.args) != 3:
            raise InvalidCall("put_copies takes ledger, session and the sizes of the copies")
        ledger, session = _checked(call.args[:2])
        if not self._sessions.allows(ledger, session):
            self._check(call, self._put_copies, [(ledger, session)])
            return
        pairs = _pairs(call.args[2])
        values = _cut(call.attachment, [size for _, size in pairs])
        copies = [(EntryId(entry), _value(value)) for (entry, _), value in zip(pairs, values, strict=True)]
        self._store.put_copies(LedgerId(ledger), SessionId(session), copies, _answer(call))

    def _begin_session(self, call: Call) -> None:
        if len(call.args) != 3:
            raise InvalidCall("begin_session takes ledger, session and bounds")
        ledger, session = _checked(call.args[:2])
        bounds = [(EntryId(first), SessionId(at)) for first, at in _pairs(call.args[2])]
        if not bounds:
            raise InvalidCall("a ledger has at least one bound")
        if any(at > session for _, at in bounds):
            raise InvalidCall(f"session {session} has a bound of a later one")
        if not self._sessions.allows(ledger, session):
            self._check(call, self._begin_session, [(ledger, session)])
            return
        # Does not end with its call: a search that takes longer than callers wait would otherwise never complete.
        self._tasks.start_soon(work_for, call, self._remove_orphans, call, LedgerId(ledger), SessionId(session), bounds)

    async def _remove_orphans(self, call: Call, ledger: LedgerId, session: SessionId, bounds: Bounds) -> None:
        try:
            await self._store.begin_session(ledger, session, bounds)
        except ERRORS.classes as error:
            call.fail(error)
        else:
            call.reply()

    def _fence(self, call: Call) -> None:
        ledger, session = _numbers(call, 2)
        if not self._sessions.allows(ledger, session):
            self._check(call, self._fence, [(ledger, session)])
            return
        self._store.fence(LedgerId(ledger), SessionId(session), _answer(call))

    def _check(self, call: Call, method: Method, given: Iterable[tuple[int, int]]) -> None:
        """Checks the ledgers and sessions of a call, and then calls its method again."""
        call.attachment = bytes(call.attachment)
        self._tasks.start_soon(work_for, call, self._call_checked, call, method, given)

    async def _call_checked(self, call: Call, method: Method, given: Iterable[tuple[int, int]]) -> None:
        try:
            await self._sessions.check(given)
            method(call)
        except ERRORS.classes as error:
            call.fail(error)
        except MemoryError as error:
            call.without_memory(error)

    def _read(self, call: Call) -> None:
        ledger, entry, minimum_session = _numbers(call, 3)
        with self._store.view() as view:
            stored = view.entry(LedgerId(ledger), EntryId(entry), SessionId(minimum_session))
            call.reply(None, stored.value)

    def _read_range(self, call: Call) -> None:
        ledger, first, last, minimum_session, bytes_max = _numbers(call, 5)
        last = min(last, first + RANGE_ENTRIES_MAX - 1)
        with self._store.view() as view:
            entries, scanned_to = view.range(
                LedgerId(ledger),
                EntryId(first),
                EntryId(last),
                SessionId(minimum_session),
                min(bytes_max, RANGE_BYTES_MAX),
            )
            sizes = [[entry, len(stored.value)] for entry, stored in entries]
            call.reply([scanned_to, sizes], b"".join([stored.value for _, stored in entries]))

    def _present(self, call: Call) -> None:
        ledger, first, last, minimum_session = _numbers(call, 4)
        if last - first >= PRESENT_ENTRIES_MAX:
            raise InvalidCall(f"ask for at most {PRESENT_ENTRIES_MAX} entries at a time")
        self._store.present(LedgerId(ledger), EntryId(first), EntryId(last), SessionId(minimum_session), _answer(call))

    def _last_add_confirmed(self, call: Call) -> None:
        (ledger,) = _numbers(call, 1)
        call.reply(self._store.last_add_confirmed(LedgerId(ledger)))

    def _file_bytes(self, call: Call) -> None:
        _numbers(call, 0)
        call.reply(self._store.file_bytes())

    def _some_ledgers(self, call: Call) -> None:
        (first,) = _numbers(call, 1)
        call.reply(self._store.ledgers.some(LedgerId(first)))

    def _wait_for_lac(self, call: Call) -> None:
        ledger, entry = _numbers(call, 2)
        confirmed = self._store.last_add_confirmed(LedgerId(ledger))
        if confirmed.entry >= entry:
            call.reply(confirmed)  # also to clients that may not wait
        else:
            call.set_aside()
            self._wait(call)

    async def _news(self, call: Call) -> Confirmed:
        ledger, entry = call.args
        with trio.move_on_after(WAIT_SECONDS):
            return await self._store.wait_for_lac(LedgerId(ledger), EntryId(entry))
        return self._store.last_add_confirmed(LedgerId(ledger))

    async def _shrink(self, call: Call) -> None:
        ledger, end = _numbers(call, 2)
        await self._store.shrink(LedgerId(ledger), EntryId(end))
        await self._store.remove(LedgerId(ledger))

    async def _delete(self, call: Call) -> None:
        (ledger,) = _numbers(call, 1)
        await self._store.delete(LedgerId(ledger))
        await self._store.remove(LedgerId(ledger))


class AddsAnswer:
    """The answer to a call with several adds: is sent when the last one is done."""

    __slots__ = ("_call", "_left", "_refusals")

    def __init__(self, call: Call, count: int) -> None:
        self._call = call
        self._left = count
        self._refusals: list[tuple[Any, ...]] = []

    def added(self, index: int, _entry: EntryId, error: StoreError | None) -> None:
        """One add is done."""
        if error is not None:
            self._refusals.append((index, *ERRORS.encode(error)))
        self._left -= 1
        if not self._left:
            self._call.reply(self._refusals)


def _adds(call: Call) -> list[tuple[int, int, int, int, bytes]]:
    """The adds of a call: five numbers each, and the values one after the other as the attachment."""
    if len(call.args) != 1 or type(call.args[0]) is not list:
        raise InvalidCall("add_many takes one list of numbers")
    numbers = call.args[0]
    count, rest = divmod(len(numbers), 5)
    if rest or not 1 <= count <= ADDS_MAX:
        raise InvalidCall(f"add_many takes five numbers for each of 1 to {ADDS_MAX} entries, {len(numbers)} came")
    adds, start = [], 0
    for add in zip(*[iter(numbers)] * 5, strict=True):
        ledger, entry, session, confirmed, size = add
        # One expression without a call: 1.7 us for four adds, 3.6 us with a call for each number.
        if not (
            type(ledger) is type(entry) is type(session) is type(confirmed) is type(size) is int
            and 0 <= ledger <= _NUMBER_MAX
            and 0 <= entry <= _NUMBER_MAX
            and 0 <= session <= _NUMBER_MAX
            and NO_ENTRY <= confirmed <= _NUMBER_MAX
            and 0 <= size <= _NUMBER_MAX
        ):
            raise InvalidCall(
                f"{add!r:.200} is no add: five numbers from 0 on, or {NO_ENTRY} as the last add confirmed"
            )
        stop = start + size
        adds.append((ledger, entry, session, confirmed, _value(call.attachment[start:stop], session)))
        start = stop
    if start != len(call.attachment):
        raise InvalidCall(f"the values have {start} bytes, {len(call.attachment)} came")
    return adds


def _answer(call: Call) -> Callable[[object, StoreError | None], None]:
    def done(result: object, error: StoreError | None) -> None:
        if error is None:
            call.reply(result)
        else:
            call.fail(error)

    return done


def _numbers(call: Call, count: int, last_min: int = 0) -> Sequence[int]:
    """The arguments, each a number from 0 on, the last one from `last_min` on."""
    args = call.args
    if len(args) != count:
        raise InvalidCall(f"{count} arguments are expected, {len(args)} came")
    _checked(args[:-1])
    _checked(args[-1:], last_min)
    return args


def _checked(numbers: Sequence[Any], lowest: int = 0) -> Sequence[int]:
    for number in numbers:
        if type(number) is not int or not lowest <= number <= _NUMBER_MAX:
            raise InvalidCall(f"{number!r:.40} is no position")
    return numbers


def _pairs(given: Any) -> list[Sequence[int]]:
    if type(given) is not list or not all(type(pair) is list and len(pair) == 2 for pair in given):
        raise InvalidCall("a list of pairs is expected")
    return [_checked(pair) for pair in given]


def _cut(attachment: Buffer, sizes: Sequence[int]) -> list[Buffer]:
    """The parts of an attachment, one after the other."""
    if sum(sizes) != len(attachment):
        raise InvalidCall(f"the values have {sum(sizes)} bytes, {len(attachment)} came")
    ends = list(accumulate(sizes))
    return [attachment[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _value(given: Buffer, session: int | None = None) -> bytes:
    value = bytes(given)
    if len(value) < HEADER_BYTES or (session is not None and session_of(value) != session):
        raise InvalidCall("the attachment is no entry of that session")
    return value
