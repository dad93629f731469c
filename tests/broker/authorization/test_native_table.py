"""The table of operations that native methods ask for: each rule is asked, and its refusal does what the table says."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parent))  # for `deciding`: test folders are no packages

from deciding import Refusing
from native_calls import native, orders, rpc, values

from gnomon.broker.authorization.native_table import NATIVE_RULES, NativeMethod
from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.authorization.rule import RefusalEffect, Rule
from gnomon.broker.native.connection import Host, NativeConnection
from gnomon.broker.native.hosts import Hosts
from gnomon.broker.subscriptions import rounds
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.client.errors import NotAuthorized
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.stream import RpcStream
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.records import Record, build_batch

RULES = [(method, rule) for method, rules in NATIVE_RULES.items() for rule in rules]
NAMED = [f"{method.value}-{rule.operation.name}-{rule.type.name}" for method, rule in RULES]
PRESENT, ABSENT = "orders", "none"
TABLE, AS_TABLE = "settings", {"gnomon.view": "kv", "gnomon.view.engine": "memory"}
NOTHING = {
    NativeMethod.STATS: {},
    NativeMethod.SUBSCRIPTIONS: [{}, None],
    NativeMethod.SUBSCRIBED_TOPICS: [],
    NativeMethod.TABLES: [],
}
"""The answers that name nothing."""


def arguments(method: NativeMethod, topic: str) -> list[Any]:
    """Arguments of a call that the broker accepts if the topic and the subscription `one` exist."""
    return {
        NativeMethod.LOOKUP: [topic],
        NativeMethod.TOPIC: [topic],
        NativeMethod.SUBSCRIBE: [topic, 0, "shared", "earliest", [["one", 2, "me", 1], ["two", 3, "me", 1]]],
        NativeMethod.UNSUBSCRIBE: [topic, 0, "one", "me", False],
        NativeMethod.SEEK: [topic, 0, "one", "earliest", []],
        NativeMethod.STATS: [topic, 0, []],
        NativeMethod.SUBSCRIPTIONS: [topic, 0, "", 10],
        NativeMethod.DESCRIBE_SUBSCRIPTION: [topic, 0, "one"],
        NativeMethod.SUBSCRIBED_TOPICS: [""],
        NativeMethod.IS_IDLE: [topic, 0, "one", 3],
        NativeMethod.IDLE_SUBSCRIPTIONS: [True],
        NativeMethod.FLOW: [[1, pack("<I", 1)]],
        NativeMethod.ACK: [[0, 1, pack("<I", 1)]],
        NativeMethod.ACK_UP_TO: [[1, pack("<I", 1)]],
        NativeMethod.NACK: [[0, 1, 0, pack("<I", 1)]],
        NativeMethod.CLOSE_CONSUMERS: [b""],
        NativeMethod.REPLICATION: [topic],
        NativeMethod.PLAN: [topic, [[0, 0, 1]], "job", 60],
        NativeMethod.READ_HOLDS: [topic],
        NativeMethod.PRODUCER_ID: [topic],
        NativeMethod.WRITE: [topic, "", 0, None, None, False],
        NativeMethod.FENCE: [topic, 0, b"w", None, None],
        NativeMethod.END: [topic, 0],
        NativeMethod.TABLE_WRITE: [topic, "", 0, b"w" * 16, 0, 0, [], [["put", b"k", b"v", 0]], []],
        NativeMethod.TABLE_GET: [topic, "", 0, b"k", False],
        NativeMethod.TABLE_SCAN: [topic, "", 0, b"", None, 10, False, False],
        NativeMethod.TABLE_COUNT: [topic, "", 0, b"", False],
        NativeMethod.TABLE_WATCH: [topic, "", 0, b"", 0],
        NativeMethod.TABLE_SNAPSHOT: [topic, "", 0],
        NativeMethod.TABLE_PARTS: [topic, "", 0],
        NativeMethod.TABLE_STATUS: [topic, "", 0, True],
        NativeMethod.TABLES: [""],
    }[method]


async def done(peer: RpcClient, method: NativeMethod, topic: str = PRESENT, topic_id: str = "") -> object:
    """The outcome of one call: its answer, its error, or None for a call without an answer."""
    try:
        if method is NativeMethod.OPEN_REPLICATION:
            async with peer.stream("open_replication") as stream:
                return await stream.__anext__()
        if method in (NativeMethod.FLOW, NativeMethod.ACK, NativeMethod.ACK_UP_TO, NativeMethod.NACK):
            peer.tell(method.value, *arguments(method, topic))
            await peer.call("close_consumers", b"")  # it is handled after the call above
            return None
        args, attachment = arguments(method, topic), b""
        if method is NativeMethod.WRITE:
            attachment = build_batch([Record()], base_timestamp=0)
        if method is NativeMethod.WRITE or method.value.startswith("table_"):
            args[1] = topic_id
        if method in (NativeMethod.TABLE_WATCH, NativeMethod.TABLE_PARTS):
            async with peer.stream(method.value, *args) as stream:
                return await stream.__anext__()
        return await peer.call(method.value, *args, attachment=attachment)
    except Exception as error:
        return error


@asynccontextmanager
async def subscribed(broker: EmbeddedBroker) -> AsyncIterator[tuple[RpcClient, RpcStream, Refusing]]:
    """A connection with a consumer of the subscription `one` without permits; nothing is refused yet."""
    deciding = broker.authorizer = Refusing()
    await broker.restart()
    await orders(broker, 3)
    await (await broker.connect()).create_topic(TABLE, configs=AS_TABLE)
    async with rpc(broker) as peer, peer.stream("receive") as stream:
        await peer.call("subscribe", PRESENT, 0, "shared", "earliest", [["one", 1, "me", 0]])
        deciding.asked.clear()
        yield peer, stream, deciding


def test_the_table_names_every_served_method_and_no_other() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        assert broker.serving.native.methods == {method.value for method in NATIVE_RULES}
        assert set(NATIVE_RULES) == set(NativeMethod)

    simulate_broker(scenario)


@pytest.mark.parametrize(("method", "rule"), RULES, ids=NAMED)
def test_a_refusal_does_what_the_table_says(method: NativeMethod, rule: Rule) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, stream, deciding):
            deciding.refuse({(rule.operation, rule.type)})
            answer = await done(peer, method)
            assert (rule.operation, rule.type) in deciding.asked
            assert {session.listener for session in deciding.sessions} == {"NATIVE", "PLAINTEXT"}
            if rule.refusal is RefusalEffect.REQUEST:
                assert isinstance(answer, NotAuthorized), answer
                assert f"is not authorized for {rule.operation.name} on {rule.type.name.lower()}" in str(answer)
            elif rule.refusal is RefusalEffect.HIDDEN:
                assert answer == NOTHING[method]
            elif method is NativeMethod.SUBSCRIBE:
                assert isinstance(answer, list)
                assert [each[0] for each in answer] == ["NotAuthorized"] * 2
                assert broker.serving.native.hosts.subscriptions == 1, "what is refused is not created"
            else:
                assert method is NativeMethod.FLOW
                assert await stream.__anext__() == [pack("<I", 1), "moved"]

    simulate_broker(scenario)


@pytest.mark.parametrize("method", [method for method in NativeMethod if method is not NativeMethod.RECEIVE])
def test_a_method_asks_for_what_the_table_names_and_nothing_else(method: NativeMethod) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, _, deciding):
            deciding.refuse(())  # decisions may differ from now on
            if method is NativeMethod.REPLICATE:
                peer.tell("replicate", 0, [])
                await peer.call("close_consumers", b"")
            else:
                name = TABLE if method.value.startswith("table_") else PRESENT
                topic_id = broker.serving.broker.topics.find(name).id.hex
                assert not isinstance(await done(peer, method, name, topic_id), Exception)
            assert deciding.asked == {(rule.operation, rule.type) for rule in NATIVE_RULES[method]}

    simulate_broker(scenario)


@pytest.mark.parametrize(
    ("method", "rule"), [each for each in RULES if each[1].refusal is RefusalEffect.REQUEST and each[1].type == 2]
)
def test_a_refusal_says_nothing_about_the_existence_of_a_topic(method: NativeMethod, rule: Rule) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, _, deciding):
            deciding.refuse({(rule.operation, rule.type)})
            there, absent = [str(await done(peer, method, name)) for name in (PRESENT, ABSENT)]
            assert there.replace(PRESENT, ABSENT) == absent

    simulate_broker(scenario)


def test_a_refused_subscription_does_not_affect_the_others_of_its_call() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, _, deciding):
            deciding.refuse({(Operation.READ, ResourceType.GROUP)}, {"two"})
            items = [["two", 2, "me", 1], ["three", 3, "me", 1]]
            refused, attached = await peer.call("subscribe", PRESENT, 0, "shared", "earliest", items)
            assert (refused[0], type(attached)) == ("NotAuthorized", int)

    simulate_broker(scenario)


def test_a_consumer_that_is_no_longer_authorized_fails_with_the_reason_and_frees_its_subscription() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        await orders(broker, 4)
        async with native(broker) as client, native(broker) as other:
            consumer = await client.subscribe("orders", "one", initial_position="earliest", queue_records=2)
            assert await values(consumer, 2) == [0, 1]
            deciding.refuse({(Operation.READ, ResourceType.TOPIC)})
            with trio.fail_after(60), pytest.raises(NotAuthorized, match="READ on topic 'orders'"):
                await values(consumer, 3)
            deciding.refuse(())
            taken = await other.subscribe("orders", "one", initial_position="earliest")
            assert (await taken.receive()).offset >= 2

    simulate_broker(scenario)


def test_a_consumer_whose_decision_has_not_changed_continues() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, stream, deciding):
            deciding.refuse({(Operation.READ, ResourceType.GROUP)}, {"another"})
            peer.tell("flow", [1, pack("<I", 1)])
            _, _, base_offset, *_ = await stream.__anext__()
            assert base_offset == 0, "it was given a record, and not sent away"
            assert (Operation.READ, ResourceType.GROUP) in deciding.asked

    simulate_broker(scenario)


def test_permits_that_wait_for_new_decisions_are_granted_before_later_calls_of_the_connection() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, _, deciding):
            items = [[f"s{number}", number, "me", 0] for number in range(2, 12)]
            await peer.call("subscribe", PRESENT, 0, "shared", "latest", items)
            deciding.refuse(())  # decisions may differ from now on
            taken: list[object] = []
            flow, close = Dispatcher.flow, NativeConnection.close_consumers

            def noted_flow(dispatcher: Any, consumer: Any, permits: int) -> None:
                taken.append(consumer.number)
                flow(dispatcher, consumer, permits)

            def noted_close(connection: NativeConnection, numbers: Any) -> Any:
                taken.append("close")
                return close(connection, numbers)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(rounds, "UNITS_PER_TURN", 1)  # each step takes a turn
                patch.setattr(Dispatcher, "flow", noted_flow)
                patch.setattr(NativeConnection, "close_consumers", noted_close)
                broker.serving.native.hosts.rounds.left = 1
                peer.tell("flow", [1, pack("<10I", *range(2, 12))])
                await peer.call("close_consumers", b"")
            assert taken == [*range(2, 12), "close"]

    simulate_broker(scenario)


def test_a_consumer_that_was_attached_while_decisions_changed_is_checked_when_it_grants_permits() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        async with subscribed(broker) as (peer, stream, deciding):
            found = Hosts.host

            async def changed_meanwhile(hosts: Hosts, name: str, index: int) -> Host:
                deciding.refuse({(Operation.READ, ResourceType.GROUP)}, {"late"})
                peer.tell("flow", [0, pack("<I", 1)])  # checks the consumers that are attached
                await trio.sleep(1)
                return await found(hosts, name, index)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Hosts, "host", changed_meanwhile)
                (attached,) = await peer.call("subscribe", PRESENT, 0, "shared", "earliest", [["late", 2, "me", 0]])
                assert type(attached) is int
            peer.tell("flow", [1, pack("<I", 2)])
            assert await stream.__anext__() == [pack("<I", 2), "moved"]

    simulate_broker(scenario)
