"""The admin API of a cluster: every broker answers for all topics, whichever partitions it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from cluster_calls import produce

from gnomon.broker.node import ServingBroker
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.storm_clients import create_topic

STATS = "/admin/v2/persistent/public/default/orders/stats"


def test_a_change_by_one_broker_is_visible_at_the_others_at_once(admin_of: Callable[[ServingBroker], Any]) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        first, second, third = (admin_of(cluster.serving[number]) for number in (1, 2, 3))
        assert await first.change("PUT", names=["a", "b"]) == (204, "")
        assert await second.shadows() == ["a", "b"]
        assert await second.change("PUT", names=["b", "c"]) == (204, "")
        assert await third.shadows() == ["c", "b"]
        assert (await third.change("PUT", "b", ["d"]))[0] == 412

        shown = (await first.ask("GET", STATS)).json()
        leaders = [shown["partitions"][0]["leader"]]
        leaders += [shadow["partitions"][0]["leader"] for shadow in shown["shadowReplication"].values()]
        assert sorted(leaders) == [1, 2, 3], "the source and its two shadows are led by three brokers"
        assert await third.change("DELETE") == (204, "")
        assert await first.shadows() == []

    simulate(7, scenario)


def test_every_broker_shows_the_stats_of_the_leaders_and_names_a_leader_that_does_not_answer(
    admin_of: Callable[[ServingBroker], Any],
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        admins = {number: admin_of(cluster.serving[number]) for number in (1, 2, 3)}
        assert await admins[1].change("PUT", names=["copy"]) == (204, "")

        await cluster.run_client("producer", lambda client: produce(client, LogHistory(), "p", 0, 2))
        await simulation.sleep(1)
        shown = {number: (await admin.ask("GET", STATS)).json() for number, admin in admins.items()}
        assert shown[1] == shown[2] == shown[3]
        (partition,) = shown[1]["partitions"]
        assert (partition["startOffset"], partition["highWatermark"]) == (0, 2)
        (shadow,) = shown[1]["shadowReplication"].values()
        assert (shadow["partitions"][0]["connected"], shadow["partitions"][0]["backlogEntries"]) == (True, 0)
        leader = partition["leader"]
        cluster.brokers[leader].kill()
        other = next(number for number in admins if number != leader)
        (partition,) = (await admins[other].ask("GET", STATS)).json()["partitions"]
        assert partition == {"partition": 0, "leader": leader, "startOffset": None, "highWatermark": None}

    simulate(7, scenario)


def test_a_change_while_the_metadata_service_is_away_is_503(admin_of: Callable[[ServingBroker], Any]) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        admin = admin_of(cluster.serving[1])
        cluster.ledgers.metadata.kill()
        for method in ("PUT", "POST"):
            status, reason = await admin.change(method, names=["a"])
            assert (status, reason.startswith("try again: ")) == (503, True)
        assert (await admin.change("DELETE"))[0] == 503

    simulate(7, scenario)


@pytest.mark.parametrize("first", ["PUT", "POST"])
def test_two_concurrent_requests_have_the_result_of_some_order_of_them(
    admin_of: Callable[[ServingBroker], Any], first: str
) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1)
        await cluster.start()
        await cluster.run_client("admin", lambda client: create_topic(client, "orders", {}))
        admin = admin_of(cluster.serving[1])
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(admin.change, first, "orders", [f"t{number}"])
        shadows = await admin.shadows()
        assert len(shadows) == (1 if first == "PUT" else 5)

    simulate(7, scenario)
