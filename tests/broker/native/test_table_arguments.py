"""Any arguments of calls on tables are answered, and change nothing for others."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest
from drawn_arguments import changed
from native_calls import native, rpc

from gnomon.client.errors import ERRORS, CompareFailed, InvalidCall, InvalidRecords
from gnomon.runtime.rpc.client import RpcClient
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

ID: Final = "the id of the topic"
METHODS: Final[dict[str, list[Any]]] = {
    "table_write": [
        *("settings", ID, 0, b"w" * 16, 3, 1),
        [[b"a", "value", "==", b"1"], [b"b", "revision", ">", -1]],
        [["put", b"a", b"2", 5_000], ["increment", b"n", 7], ["delete", b"c"], ["get", b"a"]],
        [["get", b"a"], ["put", b"d", b"", 0]],
    ],
    "table_get": ["settings", ID, 0, b"a", False],
    "table_scan": ["settings", ID, 0, b"a", b"aa", 10, False, True],
    "table_count": ["settings", ID, 0, b"a", False],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", METHODS)
def test_any_arguments_are_answered_and_the_table_goes_on(method: str, seed: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        draw = Random(f"{method}/{seed}")
        async with rpc(broker) as peer, native(broker) as client:
            topic_id, _ = await peer.call("lookup", "settings")
            for _ in range(250):
                args = [topic_id if arg is ID else arg for arg in changed(draw, METHODS[method])]
                with suppress(*ERRORS.classes, OverflowError):
                    await peer.call(method, *args)
            table = client.table("settings")
            revision = await table.put(b"after", b"1")
            with pytest.raises(CompareFailed):
                await table.put(b"after", b"2", revision=-1)
            found = await table.get(b"after")
            assert found is not None
            assert found.revision == revision

    simulate_broker(scenario)


@pytest.mark.parametrize("prefix", [None, 7, "a", b"k" * 501, []])
@pytest.mark.parametrize("revision", [None, -1, 1 << 62, "0"])
def test_a_watch_with_other_arguments_ends_alone(prefix: Any, revision: Any) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        async with rpc(broker) as peer:
            topic_id, _ = await peer.call("lookup", "settings")
            for args in ((prefix, 0), (b"", revision)):
                async with peer.stream("table_watch", "settings", topic_id, 0, *args) as stream:
                    with pytest.raises(ERRORS.classes):
                        await stream.__anext__()
            assert await peer.call("table_count", "settings", topic_id, 0, b"", False) == 0

    simulate_broker(scenario)


async def increment(peer: RpcClient, number: int, answered_below: int) -> None:
    topic_id, _ = await peer.call("lookup", "settings")
    place = ("settings", topic_id, 0, b"w" * 16)
    await peer.call("table_write", *place, number, answered_below, [], [["increment", b"n", 1]], [])


def test_a_late_copy_of_an_answered_operation_is_not_done_again() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("settings", configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        async with rpc(broker) as peer:
            await increment(peer, 0, 0)
            await increment(peer, 0, 0)  # a repeat whose answer was lost
            await increment(peer, 1, 1)
            with pytest.raises(InvalidRecords, match="this late copy of it is not done again"):
                await increment(peer, 0, 0)
            with pytest.raises(InvalidCall, match="one of 1000 from the lowest open one on"):
                await increment(peer, 1_001, 1)
        await broker.restart()
        async with rpc(broker) as peer, native(broker) as client:
            with pytest.raises(InvalidRecords, match="this late copy of it is not done again"):
                await increment(peer, 0, 0)
            found = await client.table("settings").get(b"n")
            assert found is not None
            assert found.value == b"2"

    simulate_broker(scenario)
