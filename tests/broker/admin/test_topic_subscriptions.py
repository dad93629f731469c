"""The durable subscriptions of a topic over HTTP: listed, described, moved and deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from native_calls import FLUSHED_SECONDS, native, values

from gnomon.broker.admin import topic_subscriptions
from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.node import ServingBroker
from gnomon.client.client import connect
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.records import Record, build_batch

Run = Callable[[Callable[[Any], Awaitable[None]]], None]
ORDERS = "/admin/v2/persistent/public/default/orders"
BILLING = f"{ORDERS}/subscription/billing"


async def produce(admin: Any, count: int) -> None:
    client = await admin.node.connect()
    for number in range(count):
        await client.produce("orders", build_batch([Record(value=b"%d" % number)], base_timestamp=number))


def test_subscriptions_are_listed_by_name_in_pages(administer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_subscriptions, "NAMES_MAX", 4)

    async def scenario(admin: Any) -> None:
        names = [f"reader {number}" for number in range(10)]
        async with native(admin.node) as client:
            await client.subscribe_many("orders", names)
        found: list[str] = []
        while page := (
            await admin.ask("GET", f"{ORDERS}/subscriptions", params={"after": found[-1] if found else ""})
        ).json():
            assert len(page) <= 4
            found += page
        assert found == names
        assert (await admin.ask("GET", f"{ORDERS}/subscriptions?limit=2&after=reader%207")).json() == names[8:]
        for wrong in ("limit=0", "limit=5", "limit=many"):
            assert (await admin.ask("GET", f"{ORDERS}/subscriptions?{wrong}")).status_code == 400
        admin.deciding.refuse({(Operation.DESCRIBE, ResourceType.GROUP)})
        assert (await admin.ask("GET", f"{ORDERS}/subscriptions")).json() == []

    administer(scenario)


def test_a_subscription_is_described_moved_under_its_consumer_and_deleted_without_one(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await produce(admin, 10)
        async with native(admin.node) as client:
            consumer = await client.subscribe("orders", "billing", type="shared", initial_position="earliest")
            await values(consumer, 6)
            await admin.node.simulation.sleep(FLUSHED_SECONDS)
            shown = (await admin.ask("GET", BILLING)).json()
            first, second = shown["partitions"]
            assert (shown["subscription"], first["type"]) == ("billing", "shared")
            assert (first["offset"], first["end"], first["backlogRecords"]) == (6, 10, 4)
            assert 0 < first["backlogBytes"] < 1000
            assert [second[name] for name in ("offset", "backlogRecords", "backlogSeconds")] == [0, 0, 0.0]
            assert len(first["consumers"]) == len(second["consumers"]) == 1

            refused = await admin.ask("DELETE", BILLING)
            assert (refused.status_code, refused.json()["reason"]) == (
                412,
                "subscription 'billing' has consumers: close them first",
            )
            moved = await admin.ask("POST", f"{BILLING}/seek?to=8&partition=0")
            assert moved.json() == {"partitions": [{"partition": 0, "offset": 8}]}
            await admin.node.simulation.sleep(1)  # until the consumer knows
            assert await values(consumer, 2) == [8, 9]
            moved = await admin.ask("POST", f"{BILLING}/resetcursor/3")
            assert moved.json()["partitions"] == [{"partition": 0, "offset": 3}, {"partition": 1, "offset": 0}]
            await admin.node.simulation.sleep(1)
            assert await values(consumer, 1) == [3]
            await consumer.close()
        assert (await admin.ask("DELETE", f"{BILLING}?authoritative=false&force=false")).status_code == 204
        for method, path in (("GET", BILLING), ("DELETE", BILLING), ("POST", f"{BILLING}/seek?to=latest")):
            missing = await admin.ask(method, path)
            assert (missing.status_code, missing.json()["reason"]) == (
                404,
                "topic persistent://public/default/orders has no subscription 'billing'",
            )

    administer(scenario)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("seek", 400),
        ("seek?to=middle", 400),
        ("seek?to=-1", 400),
        ("seek?to=latest&when=1", 400),
        ("seek?to=latest&partition=x", 400),
        ("seek?to=latest&partition=2", 404),
        ("resetcursor/soon", 400),
    ],
)
def test_a_seek_without_a_valid_place_is_refused(administer: Run, path: str, status: int) -> None:
    async def scenario(admin: Any) -> None:
        async with native(admin.node) as client:
            await client.subscribe("orders", "billing")
        assert (await admin.ask("POST", f"{BILLING}/{path}")).status_code == status

    administer(scenario)


def test_a_misspelt_parameter_and_force_do_not_delete(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        async with native(admin.node) as client:
            await client.subscribe("orders", "billing")
        for query in ("forced=true", "force=true"):
            assert (await admin.ask("DELETE", f"{BILLING}?{query}")).status_code == 400
        assert (await admin.ask("GET", f"{ORDERS}/subscriptions")).json() == ["billing"]

    administer(scenario)


def test_every_broker_of_a_cluster_answers_and_shows_null_for_a_leader_that_does_not(
    admin_of: Callable[[ServingBroker], Any],
) -> None:
    async def subscribe(client: WireCluster) -> None:
        async with connect(f"broker-1:{NATIVE_PORT}", world=client.world) as native:
            await native.subscribe("orders", "billing", initial_position="earliest")

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3)
        await cluster.start()
        await cluster.run_client("admin", partial(create_topic, name="orders", configs={}, partitions=4))
        await cluster.run_client("subscriber", subscribe)
        admins = {number: admin_of(cluster.serving[number]) for number in (1, 2, 3)}
        for admin in admins.values():
            assert (await admin.ask("GET", f"{ORDERS}/subscriptions")).json() == ["billing"]
            shown = (await admin.ask("GET", BILLING)).json()["partitions"]
            assert [at["offset"] for at in shown] == [0] * 4
        assert len({at["leader"] for at in shown}) > 1
        moved = await admins[1].ask("POST", f"{BILLING}/seek?to=latest")
        assert [at["offset"] for at in moved.json()["partitions"]] == [0] * 4

        dead = next(at["leader"] for at in shown if at["leader"] != 1)
        cluster.brokers[dead].kill()
        shown = (await admins[1].ask("GET", BILLING)).json()["partitions"]
        assert [at["offset"] for at in shown] == [None if at["leader"] == dead else 0 for at in shown]
        refused = await admins[1].ask("DELETE", BILLING)
        assert (refused.status_code, f"broker {dead} does not answer" in refused.json()["reason"]) == (503, True)

    simulate(7, scenario)
