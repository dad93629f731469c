"""Cancels calls of the ledger API at any step of the run, and judges the state that they leave.

1. The handle still works, or refuses appends with an error that gives the reason; after `close` it is closed.
2. The call can be made again, and its cancelled first try does not make it fail: a name whose creation was cancelled is
   free.
3. Every acknowledged entry is readable afterwards, once. The entry of a cancelled append may be there.
4. Another session can open the ledger for append, which fences the handle, unless the ledger is sealed or deleted.
5. After a call succeeded, the record of its handle equals the record in the metadata.
6. No call takes longer than PROMPT_SECONDS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import trio

from gnomon.bookie.errors import LedgerClosed, LedgerFenced, LedgerSealed, NoSuchLedger
from gnomon.bookie.ids import NO_ENTRY, EntryId
from gnomon.bookie.ledgers.catalog import OpenMode, Quorum
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.runtime.world import Clock
from gnomon.testing.storms.cancellation import cancelled_at

PROMPT_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 0.1
"""After this pause no task of earlier calls runs, so that the counted steps are those of the call."""
RETRY_SECONDS: Final = 0.01
ENTRIES: Final = 3
"""The number of entries in the ledger before the call."""
SHRUNK_TO: Final = EntryId(2)
CALLS: Final = (
    "create",
    "open to append",
    "open to read",
    "add",
    "read",
    "wait for lac",
    "wait for lac of the writer",
    "update",
    "shrink",
    "shrink at once",
    "seal",
    "seal after appends",
    "close after appends",
    "delete",
)


class CancelledLedgerCalls:
    """Two clients of the same bookies; every `judge` uses a new ledger."""

    def __init__(self, ledgers: Ledgers, another: Ledgers, clock: Clock, quorum: Quorum) -> None:
        """`quorum` applies to every ledger."""
        self._ledgers, self._another = ledgers, another
        self._clock = clock
        self._quorum = quorum
        self._names = 0

    async def judge(self, call: str, step: int) -> bool:
        """Cancels a call of CALLS after `step` steps and judges the state; returns whether the call was cancelled.

        Raises:
            AssertionError: one of the rules does not hold.
        """
        self._names += 1
        at = f"{call}, cancelled after {step} steps"
        cut = _CancelledCall(self._ledgers, self._another, self._clock, self._quorum, f"cut-{self._names}", at)
        if call != "create":
            await cut.begin()
        await self._clock.sleep(QUIET_SECONDS)
        was_cut = await cancelled_at(step, cut.call(call))
        await cut.judge(call)
        return was_cut


class _CancelledCall:
    """One ledger, one call, and the known state of the ledger's entries."""

    def __init__(self, ledgers: Ledgers, another: Ledgers, clock: Clock, quorum: Quorum, name: str, at: str) -> None:
        self._ledgers, self._another, self._clock = ledgers, another, clock
        self._quorum, self._name, self._at = quorum, name, at
        self._writer: Any = None
        self._reader: Any = None
        self._acknowledged: dict[int, bytes] = {}
        self._unanswered: list[bytes] = []
        """Payloads whose append has no answer."""
        self._first = EntryId(0)

    async def begin(self) -> None:
        """Creates the ledger with some entries, a writer and a reader."""
        self._writer = await self._create()
        for _ in range(ENTRIES):
            await self._add(self._writer)
        self._reader = await self._another.open(self._name)
        await self._reader.wait_for_lac(EntryId(ENTRIES - 1))

    async def _create(self) -> Ledger:
        return await self._ledgers.open(self._name, OpenMode.O_CREATE, quorum=self._quorum)

    async def _add(self, ledger: Ledger) -> None:
        payload = b"entry %d" % (len(self._acknowledged) + len(self._unanswered))
        self._unanswered.append(payload)
        with self._prompt("add"):
            entry = await ledger.add([payload])
        self._unanswered.remove(payload)
        self._acknowledged[entry] = payload

    def _append(self, ledger: Ledger) -> None:
        """Appends without waiting; the caller may be cancelled before the answer comes."""
        payload = b"entry %d" % (len(self._acknowledged) + len(self._unanswered))

        def done(entry: EntryId, error: Exception | None) -> None:
            assert error is None, f"an append failed: {error}: {self._at}"
            self._unanswered.remove(payload)
            self._acknowledged[entry] = payload

        self._unanswered.append(payload)
        ledger.append([payload], done)

    def call(self, call: str) -> Callable[[], Awaitable[object]]:
        """The function that makes this call."""

        async def create() -> None:
            self._writer = await self._create()

        async def open_to_append() -> None:
            self._writer = await self._ledgers.open(self._name, OpenMode.O_APPEND)

        async def after_appends(end: Callable[[], Awaitable[None]]) -> None:
            for _ in range(ENTRIES):
                self._append(self._writer)
            await end()

        writer, reader, next_entry = self._writer, self._reader, EntryId(ENTRIES)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "create": create,
            "open to append": open_to_append,
            "open to read": lambda: self._ledgers.open(self._name),
            "add": lambda: self._add(writer),
            "read": lambda: reader.read(EntryId(0), EntryId(ENTRIES - 1)),
            "wait for lac": lambda: self._with_an_append(lambda: reader.wait_for_lac(next_entry)),
            "wait for lac of the writer": lambda: self._with_an_append(lambda: writer.wait_for_lac(next_entry)),
            "update": lambda: writer.update({"owner": "me"}),
            "shrink": lambda: writer.shrink(SHRUNK_TO),
            "shrink at once": lambda: writer.shrink(SHRUNK_TO, True),
            "seal": lambda: writer.seal(),
            "seal after appends": lambda: after_appends(writer.seal),
            "close after appends": lambda: after_appends(writer.close),
            "delete": lambda: self._ledgers.delete(self._name),
        }
        return calls[call]

    async def _with_an_append(self, wait: Callable[[], Awaitable[object]]) -> None:
        self._append(self._writer)
        await wait()

    # --- the state after the cancellation ---

    async def judge(self, call: str) -> None:
        """Checks rules 1 to 6."""
        if call == "delete":
            await self._is_deleted()
            return
        if call.startswith("close"):
            await self._is_closed()
        elif call.startswith("seal"):
            await self._may_be_sealed()
            return
        else:
            with self._prompt("the call again"):
                await self._again(call)
            await self._add(self._writer)
        await self._is_left_to_others()

    async def _again(self, call: str) -> None:
        """Checks rule 2 for calls that leave the handle open."""
        writer, reader = self._writer, self._reader
        if call == "create":
            self._writer = writer or await self._create()
        elif call == "open to append":
            self._writer = await self._ledgers.open(self._name, OpenMode.O_APPEND)
        elif call.startswith("shrink"):
            await writer.shrink(SHRUNK_TO, call == "shrink at once")
            self._first = SHRUNK_TO
            assert writer.start_entry == SHRUNK_TO, self._at
        elif call == "update":
            await writer.update({"owner": "me"})
            assert (await self._another.open(self._name)).properties == {"owner": "me"}, self._at
        elif call.startswith("wait"):
            for waits in (writer, reader):
                assert await waits.wait_for_lac(EntryId(ENTRIES)) >= ENTRIES, self._at
        elif call == "read":
            assert len(await reader.read(EntryId(0), EntryId(ENTRIES - 1))) == ENTRIES, self._at
        elif call == "open to read":
            assert (await self._ledgers.open(self._name)).last_add_confirmed >= ENTRIES - 1, self._at

    async def _is_closed(self) -> None:
        try:
            await self._add(self._writer)
        except LedgerClosed:
            self._unanswered.pop()
        else:
            raise AssertionError(f"a closed handle accepted an entry: {self._at}")
        assert isinstance(self._writer.failure, LedgerClosed), f"{self._writer.failure}: {self._at}"
        with self._prompt("a second close"):
            await self._writer.close()
        with self._prompt("a wait on a closed handle"), suppress(LedgerClosed):
            await self._writer.wait_for_lac(EntryId(len(self._acknowledged) + len(self._unanswered)))

    async def _may_be_sealed(self) -> None:
        """Checks that the handle appends or reports the seal, and that a second `seal` seals the ledger for all."""
        try:
            await self._add(self._writer)
        except LedgerSealed:
            self._unanswered.pop()
        with self._prompt("a wait on a handle that was to be sealed"), suppress(LedgerSealed):
            await self._writer.wait_for_lac(EntryId(len(self._acknowledged) + len(self._unanswered) - 1))
        with self._prompt("seal again"):
            if not self._writer.record.sealed:
                await self._writer.seal()
        with self._prompt("a wait for the end of a sealed ledger"):
            await self._reader.wait_for_lac(EntryId(100))
        assert self._reader.record == self._writer.record, self._at
        assert self._writer.record.sealed, self._at
        await self._has_all(self._reader)
        with self._prompt("a second open"):
            try:
                await self._another.open(self._name, OpenMode.O_APPEND)
            except LedgerSealed:
                return
        raise AssertionError(f"a sealed ledger was opened for append: {self._at}")

    async def _is_deleted(self) -> None:
        with self._prompt("delete again"), suppress(NoSuchLedger):
            await self._ledgers.delete(self._name)
        with self._prompt("create after a deletion"):
            successor = await self._create()
        for call in (lambda: self._writer.update({}), self._writer.seal):
            with self._prompt("a call of a handle whose ledger was deleted"):
                try:
                    await call()
                except NoSuchLedger:
                    continue
            raise AssertionError(f"a deleted ledger was changed: {self._at}")
        assert await successor.read(EntryId(0), NO_ENTRY) == [], self._at
        with self._prompt("an add to a new ledger of the name"):
            assert await successor.add([b"new"]) == 0, self._at

    async def _is_left_to_others(self) -> None:
        """Checks rules 3 to 5."""
        with self._prompt("an open by another session"):
            heir = await self._claimed()
        await self._has_all(heir)
        await self._add(heir)
        with self._prompt("a fenced add"):
            try:
                await self._writer.add([b"late"])
            except (LedgerFenced, LedgerClosed):
                pass
            else:
                raise AssertionError(f"a fenced writer got an entry acknowledged: {self._at}")
        fresh = await self._another.open(self._name)
        assert fresh.record == heir.record, self._at

    async def _claimed(self) -> Ledger:
        while True:
            try:
                return await self._another.open(self._name, OpenMode.O_APPEND)
            except LedgerFenced:  # the change by the cancelled call was in flight
                await self._clock.sleep(RETRY_SECONDS)

    async def _has_all(self, ledger: Ledger) -> None:
        assert ledger.start_entry == self._first, f"the ledger begins at {ledger.start_entry}: {self._at}"
        with self._prompt("a read of all"):
            read = await ledger.read(ledger.start_entry, ledger.last_add_confirmed)
        found = dict(enumerate(read, ledger.start_entry))
        lost = {entry: found.get(entry) for entry, payload in self._acknowledged.items() if found.get(entry) != payload}
        lost = {entry: payload for entry, payload in lost.items() if entry >= self._first}
        assert not lost, f"acknowledged entries read as {lost}: {self._at}"
        others = [payload for entry, payload in found.items() if entry not in self._acknowledged]
        assert len(set(others)) == len(others), f"{others} are stored twice: {self._at}"
        assert set(others) <= set(self._unanswered), f"{others} were never appended: {self._at}"

    @contextmanager
    def _prompt(self, what: str) -> Iterator[None]:
        """Fails with the name of the call if it takes too long."""
        with trio.move_on_after(PROMPT_SECONDS) as scope:
            yield
        if scope.cancelled_caught:
            raise AssertionError(f"{what} took over {PROMPT_SECONDS:.0f} s: {self._at}")
