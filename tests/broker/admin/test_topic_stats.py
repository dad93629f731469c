from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gnomon.wire.kafka.records import Record, build_batch

Run = Callable[[Callable[[Any], Awaitable[None]]], None]
ORDERS = "/admin/v2/persistent/public/default/orders/stats"
COPY = "/admin/v2/persistent/public/default/copy/stats"


def test_stats_show_offsets_of_partitions_in_use_only_and_put_none_into_use(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        broker = admin.asked
        topic = broker.topics.image.get("orders")
        unknown = {"leader": broker.placement.node_id, "startOffset": None, "highWatermark": None}
        found = (await admin.ask("GET", ORDERS)).json()
        assert found == {
            "topic": "persistent://public/default/orders",
            "topicId": str(topic.id),
            "source": None,
            "partitions": [{"partition": 0, **unknown}, {"partition": 1, **unknown}],
            "shadowReplication": {},
        }
        assert broker.partitions.with_own_log() == []
        client = await admin.node.connect()
        batch = build_batch(
            [Record(offset_delta=0, value=b"a"), Record(offset_delta=1, value=b"b")], base_timestamp=1000
        )
        await client.produce("orders", batch, partition=1)
        await admin.change("PUT", names=["copy"])
        await client.fetch("copy", 0, partition=1)
        for path in (ORDERS, COPY):
            shown = (await admin.ask("GET", path)).json()
            known = {"leader": broker.placement.node_id, "startOffset": 0, "highWatermark": 2}
            assert shown["partitions"] == [{"partition": 0, **unknown}, {"partition": 1, **known}]
        assert shown["source"] == "persistent://public/default/orders"

    administer(scenario)


def test_stats_of_a_shadow_show_its_place_and_leaders_and_null_for_each_unknown_number(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["copy", "eu/sales/copy"])
        shown = (await admin.ask("GET", ORDERS)).json()["shadowReplication"]
        numbers = ("backlogEntries", "backlogBytes", "backlogSeconds")
        rates = ("entriesPerSecond", "recordsPerSecond", "bytesPerSecond")
        nothing = dict.fromkeys(("connected", *numbers, *rates, "lastId"))
        partitions = [{"partition": index, "leader": admin.asked.placement.node_id, **nothing} for index in (0, 1)]
        assert shown == {
            "persistent://public/default/copy": {"place": 1, "partitions": partitions},
            "persistent://eu/sales/copy": {"place": 2, "partitions": partitions},
        }

    administer(scenario)


def test_stats_show_the_last_replicated_entry_of_a_shadow(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["copy"])
        client = await admin.node.connect()
        batch = build_batch(
            [Record(offset_delta=0, value=b"a"), Record(offset_delta=1, value=b"b")], base_timestamp=1000
        )
        for _ in range(3):
            await client.produce("orders", batch, partition=1)
        await admin.node.simulation.sleep(1)
        shown = (await admin.ask("GET", ORDERS)).json()["shadowReplication"]["persistent://public/default/copy"]
        assert shown["partitions"][0]["connected"] is None, "nothing was written to it"
        known = shown["partitions"][1]
        assert (known["connected"], known["backlogEntries"], known["backlogBytes"]) == (True, 0, 0)
        assert known["lastId"] == {"segment": 0, "entry": 2}

    administer(scenario)
