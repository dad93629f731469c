from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from starlette.applications import Starlette

from gnomon.broker.admin.topic_stats import Replication, TopicStats
from gnomon.broker.topics import Topic
from gnomon.wire.kafka.records import Record, build_batch

Run = Callable[[Callable[[Any], Awaitable[None]]], None]
ORDERS = "/admin/v2/persistent/public/default/orders/stats"
COPY = "/admin/v2/persistent/public/default/copy/stats"


def test_offsets_are_told_of_partitions_in_use_and_looking_puts_none_into_use(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        broker = admin.asked
        topic = broker.image.get("orders")
        unknown = {"leader": broker.node_id, "startOffset": None, "highWatermark": None}
        found = (await admin.ask("GET", ORDERS)).json()
        assert found == {
            "topic": "persistent://public/default/orders",
            "topicId": str(topic.id),
            "source": None,
            "partitions": [{"partition": 0, **unknown}, {"partition": 1, **unknown}],
            "shadowReplication": {},
        }
        assert broker.partitions_open() == []
        client = await admin.node.connect()
        batch = build_batch(
            [Record(offset_delta=0, value=b"a"), Record(offset_delta=1, value=b"b")], base_timestamp=1000
        )
        await client.produce("orders", batch, partition=1)
        await admin.change("PUT", names=["copy"])
        await client.fetch("copy", 0, partition=1)
        for path in (ORDERS, COPY):
            told = (await admin.ask("GET", path)).json()
            known = {"leader": broker.node_id, "startOffset": 0, "highWatermark": 2}
            assert told["partitions"] == [{"partition": 0, **unknown}, {"partition": 1, **known}]
        assert told["source"] == "persistent://public/default/orders"

    administer(scenario)


def test_of_a_shadow_its_place_and_leaders_are_told_and_no_number_is_made_up(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["copy", "eu/sales/copy"])
        told = (await admin.ask("GET", ORDERS)).json()["shadowReplication"]
        nothing = {"connected": None, "backlogEntries": None, "entriesPerSecond": None, "lastId": None}
        partitions = [{"partition": index, "leader": admin.asked.node_id, **nothing} for index in (0, 1)]
        assert told == {
            "persistent://public/default/copy": {"place": 1, "partitions": partitions},
            "persistent://eu/sales/copy": {"place": 2, "partitions": partitions},
        }

    administer(scenario)


def test_what_is_known_of_the_replication_to_a_shadow_is_told(administer: Run) -> None:
    def known(shadow: Topic, index: int) -> Replication | None:
        return Replication(True, 3, 12.5, 1000, 7) if (shadow.name, index) == ("copy", 1) else None

    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["copy"])
        app = Starlette(routes=TopicStats(admin.asked, known).routes())
        admin._client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://admin")
        told = (await admin.ask("GET", ORDERS)).json()["shadowReplication"]["persistent://public/default/copy"]
        assert told["partitions"][0]["connected"] is None
        assert told["partitions"][1] == {
            "partition": 1,
            "leader": admin.asked.node_id,
            "connected": True,
            "backlogEntries": 3,
            "entriesPerSecond": 12.5,
            "lastId": {"segment": 1000, "entry": 7},
        }

    administer(scenario)
