"""A bookie answers every call of a peer, also invalid ones, and keeps serving."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from numbered_entries import contents, entries, fill

from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.protocol import ERRORS
from gnomon.bookie.remote import RemoteBookie
from gnomon.bookie.storage.service import InvalidCall
from gnomon.runtime.rpc.client import RpcClient
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

SENSELESS: list[tuple[str, list[Any]]] = [
    ("read", [-1, 0, 0]),
    ("read", [1, -1, 0]),
    ("read_range", [1, -1, 5, 0, 100]),
    ("fence", [-1, 1]),
    ("present", [1, -1, 0, 0]),
    ("last_add_confirmed", [-1]),
    ("wait_for_lac", [-1, 0]),
    ("shrink", [1, -1]),
    ("begin_session", [1, 2, [[-1, 2]]]),
    ("add", [1, -1, 1, -1]),
    ("add_many", [[1, -1, 1, -1, 40]]),
    ("confirm", [1, 1, -2]),
    ("put_copies", [1, 1, [[-1, 40]]]),
    ("delete", []),
]
METHODS = sorted({method for method, _ in SENSELESS})
ARGUMENTS = [-1, 0, 0, 1, 1, 100, 2**63 - 1, 2**63, "text", b"bytes", None, True, 1.5, [], [[1, 2]], [[-1, 2]], [7]]


async def serves(simulation: Simulation, ask: Any) -> None:
    """Asserts that a bookie stores and returns entries before and after the calls of `ask`."""
    cluster = LedgerCluster(simulation, bookies=1)
    await cluster.start()

    async def work(client: LedgerClient) -> None:
        ledger = await client.create("ledger", Quorum(1, 1, 1))
        assert ledger.id > max(number for number in ARGUMENTS[:5] if isinstance(number, int))
        await fill(ledger, 2)
        bookie = client.bookies.get(cluster.names[0])
        assert isinstance(bookie, RemoteBookie)
        assert bookie.client is not None
        await ask(bookie.client)
        await fill(ledger, 2)
        assert await contents(ledger) == entries(4)

    await cluster.run_client("peer", work)


def test_invalid_calls_are_refused_and_the_bookie_keeps_serving() -> None:
    async def ask(peer: RpcClient) -> None:
        for method, args in SENSELESS:
            with pytest.raises(InvalidCall):
                await peer.call(method, *args, attachment=bytes(40))

    simulate(1, lambda simulation: serves(simulation, ask))


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_leave_the_bookie_serving(seed: int) -> None:
    random = Random(seed)

    async def ask(peer: RpcClient) -> None:
        for _ in range(300):
            args = random.choices(ARGUMENTS, k=random.randint(0, 5))
            attachment = random.randbytes(random.choice([0, 3, 40]))
            try:
                await peer.call(random.choice(METHODS), *args, attachment=attachment)
            except ERRORS.classes:
                pass

    simulate(seed, lambda simulation: serves(simulation, ask))
