"""A bookie in another process: adds of one turn travel together, and each entry keeps its own outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from gnomon.bookie.bookie import StoreError
from gnomon.bookie.entry import HEADER_BYTES, encode_entry
from gnomon.bookie.errors import Fenced, InvalidCall
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.copies import batches
from gnomon.bookie.protocol import ADDS_MAX, HEADS
from gnomon.bookie.remote import ASKED_AT_ONCE, GATHERED_BYTES_MAX, RemoteBookie
from gnomon.bookie.storage import stored_ledgers
from gnomon.bookie.storage.session_bound import SessionBound
from gnomon.metadata.client import Revision
from gnomon.runtime.rpc.call import CALL_BYTES_MIN, Call
from gnomon.runtime.rpc.errors import NotSent
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.wire.rpc import CALL, decode, encode

SESSION = SessionId(5)
FIRST = 1_000
"""The first ledger id; no record has it."""


@dataclass
class Peer:
    """One bookie, as a client of another process uses it."""

    simulation: Simulation
    bookie: RemoteBookie
    methods: list[str] = field(default_factory=list)
    """The methods that were called, in order."""
    outcomes: dict[tuple[int, int], StoreError | None] = field(default_factory=dict)
    """The outcome of each entry, by ledger and entry, in order."""

    def note_calls(self, patch: pytest.MonkeyPatch) -> None:
        """Begins to fill `methods`."""
        client = self.bookie.client
        assert client is not None
        send = client.send

        def noted(method: str, *rest: Any) -> Any:
            self.methods.append(method)
            return send(method, *rest)

        patch.setattr(client, "send", noted)

    def add(self, ledger: int, entry: int, payload: bytes = b"payload", session: SessionId = SESSION) -> None:
        """Adds an entry without waiting for its outcome."""
        value = encode_entry(LedgerId(ledger), EntryId(entry), session, NO_ENTRY, len(payload), [payload])

        def done(entry: EntryId, error: StoreError | None) -> None:
            self.outcomes[ledger, entry] = error

        self.bookie.add(LedgerId(ledger), EntryId(entry), session, NO_ENTRY, value, done)

    async def outcome_of(self, count: int) -> dict[tuple[int, int], StoreError | None]:
        """All outcomes, once there are `count` of them."""
        with trio.fail_after(30):
            while len(self.outcomes) < count:
                await self.simulation.clock.sleep(0.01)
        return self.outcomes


def with_peer(work: Callable[[Peer], Awaitable[None]]) -> None:
    """Runs `work` with a bookie that is connected."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def client(client: LedgerClient) -> None:
            bookie = client.bookies.get(cluster.names[0])
            assert isinstance(bookie, RemoteBookie)
            await bookie.last_add_confirmed(LedgerId(1))
            peer = Peer(simulation, bookie)
            with pytest.MonkeyPatch.context() as patch:
                peer.note_calls(patch)
                # No metadata has the ledgers of these tests.
                patch.setattr(SessionBound, "allows", lambda bound, ledger, session: True)
                await work(peer)

        await cluster.run_client("peer", client)

    simulate(1, scenario)


def test_the_first_add_is_sent_at_once_and_the_small_ones_after_it_in_one_call() -> None:
    async def work(peer: Peer) -> None:
        for number in range(10):
            peer.add(FIRST + number, 0)
        assert peer.methods == ["add"]
        outcomes = await peer.outcome_of(10)
        assert peer.methods == ["add", "add_many"]
        assert list(outcomes) == [(FIRST + number, 0) for number in range(10)]
        assert set(outcomes.values()) == {None}
        for number in range(10):
            stored = await peer.bookie.read(LedgerId(FIRST + number), EntryId(0), SESSION)
            assert bytes(stored.payload) == b"payload"

    with_peer(work)


def test_all_ledgers_of_a_bookie_are_listed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(peer: Peer) -> None:
        monkeypatch.setattr(stored_ledgers, "LEDGERS_PER_TURN", 3)
        assert await peer.bookie.ledgers() == []
        for number in range(7):
            peer.add(FIRST + 2 * number, 0)
        await peer.outcome_of(7)
        peer.methods.clear()
        assert await peer.bookie.ledgers() == [FIRST + 2 * number for number in range(7)]
        assert peer.methods == ["some_ledgers"] * 4

    with_peer(work)


def test_large_entries_are_sent_alone_and_in_their_order() -> None:
    async def work(peer: Peer) -> None:
        for number, size in enumerate((1, 1, GATHERED_BYTES_MAX, 1)):
            peer.add(FIRST, number, bytes(size))
        outcomes = await peer.outcome_of(4)
        assert peer.methods == ["add", "add_many", "add", "add_many"]
        assert list(outcomes) == [(FIRST, number) for number in range(4)]

    with_peer(work)


def test_a_call_takes_a_bounded_number_of_entries() -> None:
    async def work(peer: Peer) -> None:
        for number in range(ADDS_MAX + 2):
            peer.add(FIRST, number)
        await peer.outcome_of(ADDS_MAX + 2)
        assert peer.methods == ["add", "add_many", "add_many"]

    with_peer(work)


def test_other_calls_leave_after_the_adds_that_were_made_before_them() -> None:
    async def work(peer: Peer) -> None:
        for number in range(3):
            peer.add(FIRST, number)
        fenced = await peer.bookie.fence(LedgerId(FIRST), SessionId(SESSION + 1))
        assert peer.methods == ["add", "add_many", "fence"]
        assert fenced.last_entry == 2

    with_peer(work)


def test_each_entry_of_a_call_has_its_own_outcome() -> None:
    async def work(peer: Peer) -> None:
        await peer.bookie.fence(LedgerId(FIRST + 1), SessionId(SESSION + 1))
        peer.methods.clear()
        peer.add(FIRST + 9, 0)
        for number in range(3):
            peer.add(FIRST + number, 0)
        outcomes = await peer.outcome_of(4)
        assert peer.methods == ["add", "add_many"]
        refused = outcomes.pop((FIRST + 1, 0))
        assert isinstance(refused, Fenced)
        assert refused.promised == SESSION + 1
        assert set(outcomes.values()) == {None}

    with_peer(work)


def test_a_lost_connection_leaves_every_entry_of_the_call_unknown() -> None:
    async def work(peer: Peer) -> None:
        for number in range(3):
            peer.add(FIRST, number)
        await peer.simulation.clock.sleep(0)
        for stream in list(peer.simulation.network.streams()):
            peer.simulation.network.reset(stream)
        outcomes = await peer.outcome_of(3)
        assert all(isinstance(error, Unreachable) and not isinstance(error, NotSent) for error in outcomes.values())

    with_peer(work)


def test_adds_that_wait_for_the_end_of_the_turn_are_not_sent_to_another_disk() -> None:
    async def work(peer: Peer) -> None:
        for number in range(3):
            peer.add(FIRST, number)
        peer.bookie.retire()
        outcomes = await peer.outcome_of(3)
        assert isinstance(outcomes[FIRST, 1], NotSent)
        assert isinstance(outcomes[FIRST, 2], NotSent)

    with_peer(work)


def test_an_explicit_lac_sets_no_timer_while_its_bookie_was_never_seen_alive() -> None:
    async def work(peer: Peer) -> None:
        clock = peer.simulation.clock
        timers = Timers(clock)
        bookie = RemoteBookie(Revision(7), clock, timers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            bookie.confirm(LedgerId(FIRST), SESSION, EntryId(3))
            await clock.sleep(1)
            assert len(timers) == 0
            bookie.client = peer.bookie.client
            bookie.has_started()
            await clock.sleep(1)
            assert await peer.bookie.last_add_confirmed(LedgerId(FIRST)) == (3, SESSION)
            nursery.cancel_scope.cancel()

    with_peer(work)


def test_explicit_lacs_are_sent_again_in_bounded_numbers_a_turn() -> None:
    async def work(peer: Peer) -> None:
        clock = peer.simulation.clock
        count, sent_at = 2 * ASKED_AT_ONCE + 1, list[float]()
        assert peer.bookie.client is not None
        send = peer.bookie.client.send

        def noted(*call: Any) -> Any:
            sent_at.append(clock.monotonic())
            return send(*call)

        peer.bookie.client.send = noted
        for number in range(count):
            peer.bookie.confirm(LedgerId(FIRST + number), SESSION, EntryId(3))
        await clock.sleep(2)
        assert len(sent_at) == count
        assert max(Counter(sent_at).values()) == ASKED_AT_ONCE
        peer.bookie.has_started()
        await clock.sleep(2)
        assert len(sent_at) == 2 * count
        assert max(Counter(sent_at).values()) == ASKED_AT_ONCE
        assert (await peer.bookie.last_add_confirmed(LedgerId(FIRST + count - 1))).entry == 3

    with_peer(work)


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [FIRST, 0, SESSION, NO_ENTRY],
        [FIRST, 0, SESSION, NO_ENTRY, 39],
        [FIRST, 0, SESSION, NO_ENTRY, 1 << 40],
        [FIRST, 0, SESSION + 1, NO_ENTRY, 64],
        [FIRST, 0, SESSION, NO_ENTRY - 1, 64],
        [FIRST, "0", SESSION, NO_ENTRY, 64],
        [FIRST, 0, SESSION, NO_ENTRY, 64] * (ADDS_MAX + 1),
    ],
)
def test_a_call_with_one_bad_entry_stores_none(numbers: Sequence[Any]) -> None:
    async def work(peer: Peer) -> None:
        client = peer.bookie.client
        assert client is not None
        good = encode_entry(LedgerId(FIRST), EntryId(7), SESSION, NO_ENTRY, 0, [])
        with pytest.raises(InvalidCall):
            await client.call(
                "add_many", [FIRST, 7, SESSION, NO_ENTRY, len(good), *numbers], attachment=good + bytes(64)
            )
        assert await peer.bookie.present(LedgerId(FIRST), EntryId(0), EntryId(9), SESSION) == []

    with_peer(work)


def test_a_call_is_charged_for_each_of_its_entries() -> None:
    charged: list[int] = []
    charge = Call.charge

    def noted(call: Call, size_bytes: int) -> None:
        charged.append(size_bytes)
        charge(call, size_bytes)

    async def work(peer: Peer) -> None:
        for number in range(11):
            peer.add(FIRST, number)
        await peer.outcome_of(11)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "charge", noted)
        with_peer(work)
    assert charged == [10 * CALL_BYTES_MIN]


def test_each_batch_of_the_smallest_copies_is_within_the_limit_of_its_head() -> None:
    copies = [(EntryId(2**62 + number), bytes(HEADER_BYTES)) for number in range(20_000)]
    sent = list(batches(copies))
    assert [copy for batch in sent for copy in batch] == copies
    for batch in sent:
        sizes = [[entry, len(value)] for entry, value in batch]
        (frame,) = encode([CALL, 1, "put_copies", [1, SESSION, sizes]])
        assert decode(memoryview(frame)[4:], HEADS)[0][3][2] == sizes
