"""Calls of the ledger API that are cancelled at any step: they leave a consistent state and can be repeated."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest
import trio
import trio.testing
from ledger_house import House, Run

from gnomon.bookie.errors import LedgerClosed, LedgerError, LedgerSealed
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import OpenMode, Quorum
from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.ledgers.cancelled_ledger_calls import CALLS, PROMPT_SECONDS, CancelledLedgerCalls
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

COMMIT_SECONDS = 0.005
"""Longer than the delay of a message, so that a cancellation reaches a bookie during a commit."""


async def cut_at_each_step(calls: CancelledLedgerCalls, call: str) -> None:
    for step in count():
        if not await calls.judge(call, step):
            break
    assert step > 0, "the call was never cut off"


@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_replicated_ledgers_that_is_cancelled_at_any_step_leaves_nothing_half_done(call: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, 3)
        await cluster.start()
        for machine in (cluster.metadata, *cluster.bookies.values()):
            machine.disk.conditions.sync_seconds_min = COMMIT_SECONDS
        clients: list[LedgerClient] = []

        async def connected(client: LedgerClient) -> None:
            clients.append(client)
            await trio.sleep_forever()

        for name in ("one", "another"):
            cluster.start_client(name, connected)
        while len(clients) < 2:
            await simulation.sleep(0.1)
        ledgers, another = (Ledgers(client.metadata, client.bookies) for client in clients)
        await cut_at_each_step(CancelledLedgerCalls(ledgers, another, simulation.clock, Quorum(3, 3, 2)), call)

    simulate(1, scenario)


@pytest.mark.parametrize("call", [call for call in CALLS if call != "read"])  # a read does not wait here
def test_a_call_on_ledgers_of_this_process_that_is_cancelled_at_any_step_leaves_nothing_half_done(call: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        broker.machine.disk.conditions.sync_seconds_min = COMMIT_SECONDS
        node = broker.serving.broker
        ledgers, another = (Ledgers(node.storage.metadata, node.storage.bookies) for _ in range(2))
        await cut_at_each_step(CancelledLedgerCalls(ledgers, another, broker.client_world.clock, Quorum()), call)

    simulate_broker(scenario)


def test_a_seal_that_is_cancelled_before_it_asks_the_metadata_leaves_the_handle_open(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        house.environment.automatic = False  # the append stays pending
        answers: list[LedgerError | None] = []
        ledger.append([b"pending"], lambda _entry, error: answers.append(error))
        for _ in range(2):
            with trio.move_on_after(0):
                await ledger.seal()
            assert ledger.failure is None
        ledger.append([b"more"], lambda _entry, error: answers.append(error))
        house.environment.automatic = True
        house.environment.flush()
        await ledger.seal()
        assert (answers, ledger.record.sealed, ledger.record.last_entry) == ([None, None], True, 1)

    run(scenario)


def test_cancelling_one_of_two_concurrent_seals_does_not_reopen_the_handle(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        house.environment.automatic = False
        ledger.append([b"pending"], lambda _entry, _error: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.seal)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0):
                await ledger.seal()
            with pytest.raises(LedgerSealed, match="may be sealed: seal it again"):
                ledger.append([b"late"], lambda _entry, _error: None)
            house.environment.automatic = True
            house.environment.flush()
        assert ledger.record.sealed

    run(scenario)


def test_a_handle_closed_during_a_seal_stays_closed(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        house.environment.automatic = False
        ledger.append([b"pending"], lambda _entry, _error: None)
        async with trio.open_nursery() as nursery:

            async def seal_in_vain() -> None:
                with pytest.raises(LedgerClosed):
                    await ledger.seal()

            nursery.start_soon(seal_in_vain)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0):
                await ledger.close()
            house.environment.automatic = True
            house.environment.flush()
        assert isinstance(ledger.failure, LedgerClosed)
        assert not ledger.record.sealed

    run(scenario)


def test_a_cancelled_close_still_closes_the_handle_and_ends_its_waits_with_an_error(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        house.environment.automatic = False
        answers: list[LedgerError | None] = []
        ledger.append([b"pending"], lambda _entry, error: answers.append(error))
        async with trio.open_nursery() as nursery:

            async def wait_in_vain() -> None:
                with pytest.raises(LedgerClosed):
                    await ledger.wait_for_lac(EntryId(1))

            nursery.start_soon(wait_in_vain)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0):
                await ledger.close()
        house.environment.automatic = True
        house.environment.flush()
        with pytest.raises(LedgerClosed):
            ledger.append([b"late"], lambda _entry, _error: None)
        await ledger.close()
        assert answers == [None]

    run(scenario)


@pytest.mark.parametrize("quorum", [Quorum(), Quorum(1, 2, 3)])
def test_cancelled_creations_of_one_name_leave_the_name_free(run: Run, quorum: Quorum) -> None:
    async def scenario(house: House) -> None:
        ledgers = Ledgers(house.metadata, house.bookies)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(partial(ledgers.open, "ledger", OpenMode.O_CREATE, quorum=quorum))
                scope.cancel()
        with trio.fail_after(PROMPT_SECONDS):
            await ledgers.open("ledger", OpenMode.O_CREATE, quorum=Quorum())

    run(scenario)
