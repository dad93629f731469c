"""Tables over HTTP in a cluster: every broker answers for the leaders."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from raw_requests import open_answer, raw_scope

from gnomon.broker.node import ServingBroker
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow

SETTINGS = "/kv/v1/settings"
IN_MEMORY = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}
JSON = {"content-type": "application/json"}
BROKERS = (1, 2, 3)
REFUSED_AT_A_SHADOW = (
    ("GET", "/key7"),
    ("PUT", "/key7"),
    ("DELETE", "/key7"),
    ("GET", ""),
    ("GET", "?watch"),
    ("POST", ""),
)
Scenario = Callable[[BrokerCluster, dict[int, Any]], Awaitable[None]]


def in_a_cluster(admin_of: Callable[[ServingBroker], Any], scenario: Scenario, partitions: int = 4) -> None:
    """Runs a scenario with three brokers, the clients of their admin APIs, and the table `settings`."""

    async def run(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, len(BROKERS))
        await cluster.start()
        create = partial(create_topic, name="settings", configs=IN_MEMORY, partitions=partitions)
        await cluster.run_client("admin", create)
        await scenario(cluster, {number: admin_of(cluster.serving[number]) for number in BROKERS})

    simulate(7, run)


def test_every_broker_reads_and_writes_the_keys_of_all_leaders(admin_of: Callable[[ServingBroker], Any]) -> None:
    async def scenario(cluster: BrokerCluster, admins: dict[int, Any]) -> None:
        wanted = {f"key{number}": b"%d" % number for number in range(12)}
        for number, (key, value) in enumerate(wanted.items()):
            put = await admins[1 + number % 3].ask("PUT", f"{SETTINGS}/{key}", content=value)
            assert put.status_code == 204, put.text
            got = await admins[1 + (number + 1) % 3].ask("GET", f"{SETTINGS}/{key}")
            assert (got.content, got.headers["etag"]) == (value, put.headers["etag"])
        assert len({cluster.leader("settings", index) for index in range(4)}) > 1
        pages = [(await admin.ask("GET", SETTINGS)).json() for admin in admins.values()]
        assert pages[0] == pages[1] == pages[2]
        found = {
            base64.b64decode(each["key"]).decode(): base64.b64decode(each["value"]) for each in pages[0]["entries"]
        }
        assert found == wanted

        lists = [(await admin.ask("GET", "/kv/v1")).json() for admin in admins.values()]
        assert lists[0] == lists[1] == lists[2]
        (table,) = lists[0]["tables"]
        assert (table["keys"], table["lag"]) == (12, 0)
        leaders = [each["leader"] for each in table["partitions"]]
        assert leaders == [cluster.leader("settings", index) for index in range(4)]

        async with open_answer(admins[2].app, raw_scope("GET", SETTINGS.encode(), b"watch")) as answer:
            assert await answer.head() == 200
            shown = {base64.b64decode((await answer.line())["key"]).decode() for _ in wanted}
            assert shown == set(wanted)
            await admins[3].ask("DELETE", f"{SETTINGS}/key5")
            assert (await answer.line())["kind"] == "delete"

    in_a_cluster(admin_of, scenario)


def test_of_writes_through_several_brokers_that_expect_the_same_one_is_done(
    admin_of: Callable[[ServingBroker], Any],
) -> None:
    async def scenario(cluster: BrokerCluster, admins: dict[int, Any]) -> None:
        statuses: list[int] = []

        async def put(number: int) -> None:
            headers = {"If-None-Match": "*"}
            answer = await admins[1 + number % 3].ask(
                "PUT", f"{SETTINGS}/lock", content=b"%d" % number, headers=headers
            )
            statuses.append(answer.status_code)

        async with trio.open_nursery() as nursery:
            for number in range(9):
                nursery.start_soon(put, number)
        assert sorted(statuses) == [204] + [412] * 8

    in_a_cluster(admin_of, scenario)


def test_a_write_whose_answer_is_lost_is_done_once(
    admin_of: Callable[[ServingBroker], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = RpcClient.exchange
    lost: list[str] = []

    async def losing(client: RpcClient, method: str, *args: Any, **fields: Any) -> Any:
        answer = await exchange(client, method, *args, **fields)
        if method == "table_write" and len(lost) < 3:
            lost.append(method)
            raise Unreachable("the connection is lost")
        return answer

    async def scenario(cluster: BrokerCluster, admins: dict[int, Any]) -> None:
        monkeypatch.setattr(RpcClient, "exchange", losing)
        for number in BROKERS:
            lost.clear()
            body = json.dumps({"then": [["incr", "bg=="]]}).encode()
            added = await admins[number].ask("POST", SETTINGS, content=body, headers=JSON)
            assert added.json()["answers"][0]["value"] == base64.b64encode(b"%d" % number).decode()
        assert len(lost) == 3

    in_a_cluster(admin_of, scenario, partitions=1)


def test_a_request_waits_for_the_next_leader_and_the_list_says_which_does_not_answer(
    admin_of: Callable[[ServingBroker], Any],
) -> None:
    async def scenario(cluster: BrokerCluster, admins: dict[int, Any]) -> None:
        dead = cluster.leader("settings", 0)
        other, third = (admins[number] for number in BROKERS if number != dead)
        first = await other.ask("PUT", f"{SETTINGS}/colour", content=b"green")
        cluster.brokers[dead].kill()
        (table,) = (await third.ask("GET", "/kv/v1")).json()["tables"]
        assert (table["keys"], table["partitions"][0]["leader"]) == (None, dead)
        assert table["partitions"][0]["reason"].startswith(f"broker {dead} does not answer: ")
        second = await other.ask(
            "PUT", f"{SETTINGS}/colour", content=b"blue", headers={"If-Match": first.headers["etag"]}
        )
        assert (second.status_code, second.headers["gnomon-version"]) == (204, "2")
        assert (await third.ask("GET", f"{SETTINGS}/colour")).content == b"blue"

    in_a_cluster(admin_of, scenario, partitions=1)


def test_a_table_without_a_leader_is_503_and_a_write_that_may_be_done_504(
    admin_of: Callable[[ServingBroker], Any],
) -> None:
    async def scenario(cluster: BrokerCluster, admins: dict[int, Any]) -> None:
        admin = admins[1]
        await admin.ask("PUT", f"{SETTINGS}/colour", content=b"green")
        for bookie in cluster.ledgers.bookies.values():
            bookie.kill()
        cluster.ledgers.metadata.kill()
        answer = await admin.ask("GET", f"{SETTINGS}/colour")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        written = await admin.ask("PUT", f"{SETTINGS}/colour", content=b"blue")
        assert written.status_code == 504
        assert written.json()["reason"].startswith("the outcome is unknown: no answer within 30 s")

    in_a_cluster(admin_of, scenario, partitions=1)


def test_a_shadow_answers_stale_reads_and_refuses_the_rest(admin_of: Callable[[ServingBroker], Any]) -> None:
    async def scenario(cluster: BrokerCluster, admins: dict[int, Any]) -> None:
        await cluster.run_client("shadow", partial(cast_shadow, source="settings", shadow="copy"))
        for number in range(12):
            put = await admins[1].ask("PUT", f"{SETTINGS}/key{number}", content=b"%d" % number)
            assert put.status_code == 204, put.text
        wanted = (await admins[1].ask("GET", SETTINGS)).json()["entries"]
        for admin in admins.values():
            while (page := (await admin.ask("GET", "/kv/v1/copy?stale=true")).json()).get("entries") != wanted:
                await cluster.simulation.clock.sleep(0.1)
            assert page["entries"] == wanted
            got = await admin.ask("GET", "/kv/v1/copy/key7?stale=true")
            assert (got.status_code, got.content) == (200, b"7")
            assert int(got.headers["gnomon-age-ms"]) >= 0
            assert set(page["ages_ms"]) == set(page["revisions"])
            for method, path in REFUSED_AT_A_SHADOW:
                body = {"content": b"{}", "headers": JSON} if method == "POST" else {}
                refused = await admin.ask(method, f"/kv/v1/copy{path}", **body)
                assert refused.status_code == 409, (method, path, refused.text)
                assert "shadow of table 'settings'" in refused.text

    in_a_cluster(admin_of, scenario)
