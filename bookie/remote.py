"""A bookie in another process: a `Bookie` whose calls go over the internal RPC.

Unanswered calls end with Unreachable; their effect at the bookie is unknown (`runtime/rpc/client.py`).

If a call is already under way, small entries that are added in one turn of the event loop, also to different ledgers,
are sent in one call: a frame and an answer cost more than an add. Every other call is sent after the adds that were
made before it.

Each add carries its ledger's last add confirmed (LAC). After the last add the LAC is sent without one (explicit LAC),
so that followers of the ledger see its last entries. It is first sent without asking for an answer, and then again
until the bookie acknowledges it. It is also sent again after a restart of the bookie, which keeps it in memory only. A
bookie that was dismissed, or whose disk was replaced, gets no more calls: nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import trio

from gnomon.bookie.bookie import Added, Bounds, Confirmed, Copies, FenceResult, RangeRead, ReadableStore, StoreError
from gnomon.bookie.entry import StoredEntry, decode_entry
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.protocol import ADDS_MAX
from gnomon.metadata.client import Revision
from gnomon.runtime.backoff import Backoff
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import NotSent
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock, WorldError

EXPLICIT_LAC_SECONDS: Final = 0.01
"""Delay before an explicit LAC is sent when no further add carries it; also the shortest interval."""
SURE: Final = Backoff(0.5, 30.0)
"""Delays before an explicit LAC is sent again with an acknowledgement: at first, and after failures."""
EXPLICIT_LACS_MAX: Final = 10_000
"""While a bookie is away, the explicit LACs of this many ledgers wait for it, those confirmed last. As many are kept
after their acknowledgement, and are sent again after a restart of the bookie."""
ASKED_AT_ONCE: Final = 500
"""Explicit LACs that are sent again in one turn of the event loop: one takes some 2 to 10 us."""
GATHERED_BYTES_MAX: Final = 4096
"""The largest value that is sent together with others: it is copied."""


_Add: TypeAlias = tuple[LedgerId, EntryId, SessionId, EntryId, bytes, Added]
"""An add that waits for the end of the turn: the arguments of `RemoteBookie.add`."""


class RemoteBookie:
    """One disk of one bookie's name; the registry gives it a client for its current address."""

    def __init__(
        self, disk: Revision, clock: Clock, timers: Timers, *, explicit_lac_seconds: float = EXPLICIT_LAC_SECONDS
    ) -> None:
        self.disk = disk
        self.client: RpcClient | None = None
        """None until the bookie was seen alive, and after `retire`."""
        self._clock = clock
        self._timers = timers
        self._explicit_lac_seconds = explicit_lac_seconds
        self._gathered: list[_Add] = []
        self._confirmed: dict[LedgerId, Confirmed] = {}
        """Explicit LACs to send soon."""
        self._unsure: dict[LedgerId, Confirmed] = {}
        """Explicit LACs that were sent, and may not have arrived."""
        self._acknowledged: dict[LedgerId, Confirmed] = {}
        """Explicit LACs that the bookie has acknowledged, perhaps before it restarted."""
        self._sure_due = False
        self._failures = 0
        self._retired = False

    def retire(self) -> None:
        """Ends this client for good: the disk was dismissed, or another disk with no promises has its name."""
        self.client = None
        self._retired = True
        self._confirmed.clear()
        self._unsure.clear()
        self._acknowledged.clear()

    def _connected(self) -> RpcClient:
        self._send_gathered()
        if self.client is None:
            raise _never_seen()
        return self.client

    def add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        session: SessionId,
        last_add_confirmed: EntryId,
        value: bytes,
        done: Added,
    ) -> None:
        """See `Bookie.add`."""
        client = self.client
        if client is None:
            # By a timer, because `done` must not be called before this returns.
            self._timers.call_at(self._clock.monotonic(), lambda: done(entry, _never_seen()))
            return
        if client.waits and len(value) <= GATHERED_BYTES_MAX:
            if not self._gathered:
                client.network.call_soon(self._send_gathered)
            self._gathered.append((ledger, entry, session, last_add_confirmed, value, done))
            return
        self._send_gathered()
        client.send("add", (ledger, entry, session, last_add_confirmed), value, partial(_added, done, entry))

    def _send_gathered(self) -> None:
        """Sends the adds of this turn, in order."""
        gathered, self._gathered = self._gathered, []
        client = self.client
        for at in range(0, len(gathered), ADDS_MAX):
            adds = gathered[at : at + ADDS_MAX]
            if client is None:
                _end_all(adds, _never_seen())
                continue
            positions = [
                number
                for ledger, entry, session, confirmed, value, _ in adds
                for number in (ledger, entry, session, confirmed, len(value))
            ]
            values = b"".join([add[4] for add in adds])
            client.send("add_many", (positions,), values, partial(_all_added, client, adds))

    def confirm(self, ledger: LedgerId, session: SessionId, last_add_confirmed: EntryId) -> None:
        """See `Bookie.confirm`; several of one ledger are sent as one, a little later."""
        if self._retired:
            return
        if not self._confirmed:
            self._timers.call_at(self._clock.monotonic() + self._explicit_lac_seconds, self._send_confirmed)
        confirmed = Confirmed(last_add_confirmed, session)
        self._confirmed[ledger] = max(confirmed, self._confirmed.get(ledger, confirmed))

    def _send_confirmed(self) -> None:
        confirmed, self._confirmed = self._confirmed, {}
        if self.client is not None:
            for ledger, (entry, session) in confirmed.items():
                self.client.tell("confirm", ledger, session, entry)
        _keep(self._unsure, confirmed)
        self._make_sure_soon()

    def has_started(self) -> None:
        """The bookie may have restarted: then it knows only the last add confirmed carried by adds."""
        unsure, self._unsure = self._unsure, dict(self._acknowledged)
        _keep(self._unsure, unsure)
        self._failures = 0
        self._make_sure_soon()

    def _make_sure_soon(self) -> None:
        """Without a client nothing is due: `has_started` follows once the bookie is seen alive."""
        if self._unsure and self.client is not None and not self._sure_due:
            self._sure_due = True
            seconds = SURE.seconds(self._failures + 1)
            self._timers.call_at(self._clock.monotonic() + seconds, self._make_sure)

    def _make_sure(self) -> None:
        self._sure_due = False
        asked, self._unsure = self._unsure, {}
        self._ask_some(asked)
        self._make_sure_soon()

    def _ask_some(self, asked: dict[LedgerId, Confirmed]) -> None:
        """Sends explicit LACs again, ASKED_AT_ONCE in a turn."""
        if self.client is None:
            return
        for ledger in list(islice(asked, ASKED_AT_ONCE)):
            confirmed = asked.pop(ledger)
            if ledger not in self._confirmed and ledger not in self._unsure:  # otherwise a higher one is to be sent
                self._ask_to_confirm(self.client, ledger, confirmed)
        if asked:
            self._timers.call_at(self._clock.monotonic() + PAUSE_SECONDS, partial(self._ask_some, asked))

    def _ask_to_confirm(self, client: RpcClient, ledger: LedgerId, confirmed: Confirmed) -> None:
        def answered(_value: Any, _attachment: memoryview, error: Exception | None) -> None:
            if self._retired:
                return
            if error is None:
                self._failures = 0
                _keep(self._acknowledged, {ledger: confirmed})
            elif ledger not in self._unsure and ledger not in self._confirmed:
                _keep(self._unsure, {ledger: confirmed})
                if not self._sure_due:
                    self._failures += 1
                    self._make_sure_soon()

        client.send("confirm", (ledger, confirmed.session, confirmed.entry), b"", answered)

    async def put_copies(self, ledger: LedgerId, session: SessionId, copies: Copies) -> None:
        """See `Bookie.put_copies`."""
        sizes = [[entry, len(value)] for entry, value in copies]
        values = b"".join([value for _, value in copies])
        await self._connected().call("put_copies", ledger, session, sizes, attachment=values)

    async def begin_session(self, ledger: LedgerId, session: SessionId, bounds: Bounds) -> None:
        """See `Bookie.begin_session`."""
        await self._connected().call("begin_session", ledger, session, [list(bound) for bound in bounds])

    async def fence(self, ledger: LedgerId, session: SessionId) -> FenceResult:
        """See `Bookie.fence`."""
        last_entry, confirmed, bound = await self._connected().call("fence", ledger, session)
        return FenceResult(EntryId(last_entry), EntryId(confirmed), SessionId(bound))

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId) -> StoredEntry:
        """See `Bookie.read`; the digest is checked again here, after the transfer."""
        _, value = await self._connected().exchange("read", ledger, entry, minimum_session)
        return decode_entry(ledger, entry, memoryview(value))

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        """See `Bookie.read_range`."""
        answer, attachment = await self._connected().exchange(
            "read_range", ledger, first, last, minimum_session, bytes_max
        )
        scanned_to, sizes = answer
        values = memoryview(attachment)
        entries: list[tuple[EntryId, StoredEntry]] = []
        at = 0
        for entry, size in sizes:
            entries.append((EntryId(entry), decode_entry(ledger, EntryId(entry), values[at : at + size])))
            at += size
        return RangeRead(entries, EntryId(scanned_to))

    async def present(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId
    ) -> list[tuple[EntryId, EntryId]]:
        """See `Bookie.present`."""
        runs = await self._connected().call("present", ledger, first, last, minimum_session)
        return [(EntryId(start), EntryId(end)) for start, end in runs]

    async def last_add_confirmed(self, ledger: LedgerId) -> Confirmed:
        """See `Bookie.last_add_confirmed`."""
        return Confirmed(*await self._connected().call("last_add_confirmed", ledger))

    async def wait_for_lac(self, ledger: LedgerId, entry: EntryId) -> Confirmed:
        """See `Bookie.wait_for_lac`."""
        while True:
            confirmed = Confirmed(*await self._connected().call("wait_for_lac", ledger, entry))
            if confirmed.entry >= entry:
                return confirmed
            await trio.lowlevel.checkpoint()

    async def shrink(self, ledger: LedgerId, end: EntryId) -> None:
        """See `Bookie.shrink`."""
        await self._connected().call("shrink", ledger, end)

    async def delete(self, ledger: LedgerId) -> None:
        """See `Bookie.delete`."""
        await self._connected().call("delete", ledger)

    def view(self) -> ReadableStore | None:
        """See `Bookie.view`: its store is elsewhere."""
        return None


def _keep(kept: dict[LedgerId, Confirmed], newer: Mapping[LedgerId, Confirmed]) -> None:
    """Adds explicit LACs, and drops the oldest beyond EXPLICIT_LACS_MAX."""
    for ledger, confirmed in newer.items():
        kept.pop(ledger, None)
        kept[ledger] = confirmed
    while len(kept) > EXPLICIT_LACS_MAX:
        del kept[next(iter(kept))]


def _added(done: Added, entry: EntryId, _value: Any, _attachment: memoryview, error: Exception | None) -> None:
    assert error is None or isinstance(error, LedgerError | WorldError), error
    done(entry, error)


def _all_added(
    client: RpcClient, adds: list[_Add], refusals: Any, attachment: memoryview, error: Exception | None
) -> None:
    """Ends adds of one call: `refusals` has the index and the encoded error of each add that was not done."""
    if error is not None:
        assert isinstance(error, LedgerError | WorldError), error
        _end_all(adds, error)
        return
    refused = {index: client.errors.decode(*encoded) for index, *encoded in refusals}
    for index, (_, entry, _, _, _, done) in enumerate(adds):
        if index in refused:
            _added(done, entry, None, attachment, refused[index])
        else:
            done(entry, None)


def _end_all(adds: list[_Add], error: StoreError) -> None:
    for _, entry, _, _, _, done in adds:
        done(entry, error)


def _never_seen() -> NotSent:
    return NotSent(
        "this bookie was not seen alive since this process started, or its disk was replaced: nothing was sent"
    )
