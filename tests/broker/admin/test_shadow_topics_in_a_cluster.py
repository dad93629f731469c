"""Any broker of a cluster may be asked, one after the other, whatever it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from gnomon.broker.broker import Broker
from gnomon.testing.broker_cluster import BrokerCluster
from gnomon.testing.simulation import Simulation, simulate
from gnomon.testing.storm_clients import create_topic

STATS = "/admin/v2/persistent/public/default/orders/stats"


def test_what_one_broker_did_the_others_know_of_at_once(admin_of: Callable[[Broker], Any]) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        first, second, third = (admin_of(cluster.serving[number].broker) for number in (1, 2, 3))
        assert await first.change("PUT", names=["a", "b"]) == (204, "")
        assert await second.shadows() == ["a", "b"]
        assert await second.change("PUT", names=["b", "c"]) == (204, "")
        assert await third.shadows() == ["c", "b"]
        assert (await third.change("PUT", "b", ["d"]))[0] == 412

        told = (await first.ask("GET", STATS)).json()
        leaders = [told["partitions"][0]["leader"]]
        leaders += [shadow["partitions"][0]["leader"] for shadow in told["shadowReplication"].values()]
        assert sorted(leaders) == [1, 2, 3], "the source and its two shadows are led by three brokers"
        assert await third.change("DELETE") == (204, "")
        assert await first.shadows() == []

    simulate(7, scenario)


def test_while_the_metadata_is_away_it_is_503(admin_of: Callable[[Broker], Any]) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        admin = admin_of(cluster.serving[1].broker)
        cluster.ledgers.metadata.kill()
        for method in ("PUT", "POST"):
            status, reason = await admin.change(method, names=["a"])
            assert (status, reason.startswith("try again: ")) == (503, True)
        assert (await admin.change("DELETE"))[0] == 503

    simulate(7, scenario)


@pytest.mark.parametrize("first", ["PUT", "POST"])
def test_two_requests_at_once_end_as_if_one_came_after_the_other(admin_of: Callable[[Broker], Any], first: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        admin = admin_of(cluster.serving[1].broker)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(admin.change, first, "orders", [f"t{number}"])
        shadows = await admin.shadows()
        assert len(shadows) == (1 if first == "PUT" else 5)

    simulate(7, scenario)
