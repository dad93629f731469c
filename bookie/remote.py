"""A bookie in another process: a `Bookie` whose calls go over the internal RPC.

Unanswered calls end with Unreachable; their effect at the bookie is unknown (`runtime/rpc/client.py`).

If a call is already under way, small entries that are added in one turn of the event loop, also to different ledgers,
are sent in one call: a frame and an answer cost more than an add. Every other call is sent after the adds that were
made before it.

Each add carries its ledger's last add confirmed (LAC). After the last add the LAC is sent without one (explicit LAC),
so that followers of the ledger see its last entries. It is first sent without asking for an answer, and then again
until the bookie acknowledges it. It is also sent again after a restart of the bookie, which keeps it in memory only
(`explicit_lacs.py`). A bookie that was dismissed, or whose disk was replaced, gets no more calls: nothing waits for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeAlias

import trio

from gnomon.bookie.bookie import Added, Bounds, Confirmed, Copies, FenceResult, RangeRead, ReadableStore, StoreError
from gnomon.bookie.entry import StoredEntry, decode_entry
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.explicit_lacs import ExplicitLacs, LacRequest
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.protocol import ADDS_MAX, ERRORS, HEADS, service_of
from gnomon.metadata.client import Revision
from gnomon.runtime.backoff import Backoff
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import NotSent
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock, World, WorldError

CALL_SECONDS: Final = 5.0
"""If a call has no answer after this time, its bookie counts as failed for the ledger of the call."""
EXPLICIT_LAC_SECONDS: Final = 0.01
"""Delay before an explicit LAC is sent when no further add carries it; also the shortest interval."""
SURE: Final = Backoff(0.5, 30.0)
"""Delays before an explicit LAC is sent again with an acknowledgement: at first, and after failures."""
ASKED_AT_ONCE: Final = 500
"""Explicit LACs that are sent again in one turn of the event loop: one takes some 2 to 10 us."""
GATHERED_BYTES_MAX: Final = 4096
"""The largest value that is sent together with others: it is copied."""


_Add: TypeAlias = tuple[LedgerId, EntryId, SessionId, EntryId, bytes, Added]
"""An add that waits for the end of the turn: the arguments of `RemoteBookie.add`."""


def bookie_client(world: World, name: BookieId, host: str, port: int, disk: Revision, cluster: str | None) -> RpcClient:
    """A client for one disk of a bookie's name at one address; `RpcClient.run` connects it.

    Args:
        cluster: the id of the cluster that the bookie belongs to.
    """
    return RpcClient(
        world, host, port, service_of(name, disk), ERRORS, call_seconds=CALL_SECONDS, cluster=cluster, heads=HEADS
    )


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
        self._lacs = ExplicitLacs()
        self._sure_timer: Timer | None = None
        """The next turn in which explicit LACs are sent with a request for an acknowledgement."""
        self._failures = 0
        """Rounds in a row of which a request failed; a success sets it to 0."""
        self._failed = False
        """A request failed that `_failures` does not count yet."""
        self._retired = False

    def retire(self) -> None:
        """Ends this client for good: the disk was dismissed, or another disk with no promises has its name."""
        self.client = None
        self._retired = True
        self._lacs = ExplicitLacs()
        self._stop_round()

    def _connected(self) -> RpcClient:
        self._send_gathered()
        if self.client is None:
            raise _no_client()
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
            self._timers.call_at(self._clock.monotonic(), lambda: done(entry, _no_client()))
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
                _end_all(adds, _no_client())
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
        if not self._lacs.is_fresh:
            self._timers.call_at(self._clock.monotonic() + self._explicit_lac_seconds, self._send_confirmed)
        self._lacs.confirm(ledger, Confirmed(last_add_confirmed, session))

    def _send_confirmed(self) -> None:
        for ledger, (entry, session) in self._lacs.take_fresh().items():
            if self.client is not None:
                self.client.tell("confirm", ledger, session, entry)
        self._make_sure_soon()

    def has_started(self) -> None:
        """The bookie may have restarted: then it knows only the last add confirmed carried by adds."""
        self._lacs.has_started()
        self._failures, self._failed = 0, False
        self._stop_round()
        self._make_sure_soon()

    def _make_sure_soon(self) -> None:
        """Without a client nothing is due: `has_started` follows once the bookie is seen alive."""
        if not self._lacs.is_due or self.client is None or self._sure_timer is not None:
            return
        self._failures, self._failed = self._failures + self._failed, False
        seconds = SURE.seconds(self._failures + 1)
        self._sure_timer = self._timers.call_at(self._clock.monotonic() + seconds, self._make_sure)

    def _make_sure(self) -> None:
        self._lacs.begin_round()
        self._ask_some()

    def _ask_some(self) -> None:
        client = self.client
        assert client is not None, "a retired client asks nothing"
        for request in self._lacs.ask(ASKED_AT_ONCE):
            arguments = (request.ledger, request.confirmed.session, request.confirmed.entry)
            client.send("confirm", arguments, b"", partial(self._answered, request))
        if self._lacs.in_round:
            self._sure_timer = self._timers.call_at(self._clock.monotonic() + PAUSE_SECONDS, self._ask_some)
        else:
            self._sure_timer = None
            self._make_sure_soon()

    def _answered(self, request: LacRequest, _value: Any, _attachment: memoryview, error: Exception | None) -> None:
        if error is None:
            self._failures, self._failed = 0, False
            self._lacs.acknowledged(request)
        elif self._lacs.failed(request):
            self._failed = True
            self._make_sure_soon()

    def _stop_round(self) -> None:
        if self._sure_timer is not None:
            self._sure_timer.cancel()
            self._sure_timer = None

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

    async def ledgers(self) -> list[LedgerId]:
        """Every ledger with stored data there, in order.

        Raises:
            LedgerError, WorldError: the bookie does not answer, or does not know the call.
        """
        found: list[LedgerId] = []
        while some := await self._connected().call("some_ledgers", found[-1] + 1 if found else 0):
            found += map(LedgerId, some)
        return found

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


def _no_client() -> NotSent:
    return NotSent(
        "this bookie was not seen alive since this process started, or its disk was dismissed or replaced: nothing was"
        " sent; `gnomon bookie list` shows its state"
    )
