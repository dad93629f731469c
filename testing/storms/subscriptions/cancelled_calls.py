"""Cancels calls of the native client at any step of the run, and judges the state that they leave.

1. A consumer whose call was cancelled still works: it receives the log to its end. After a cancelled `close` it is
   closed.
2. A cancelled call can be made again; its cancelled first try does not make it fail.
3. Another client gets every record of the subscription afterwards: no broker keeps records for a consumer that ended.
4. A subscription that is deleted at the end is stored nowhere.
5. No call takes longer than PROMPT_SECONDS.

`CancelledCalls.judge` cancels one call at one step and judges the state. `cancel_calls` does this on a simulated
cluster for many calls and steps, drawn at random.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, get_args

import trio

from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.consumer_options import Type
from gnomon.client.errors import ConsumerClosed, NoSuchSubscription, SubscriptionTaken
from gnomon.testing.storms.cancellation import cancelled_at
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow

PROMPT_SECONDS: Final = 5.0
CALLS: Final = ("subscribe", "close", "unsubscribe", "seek to the start", "seek to the end", "seek", "receive", "stats")
FOUND_AGAIN: Final = 2
"""Records that the consumer has received before its call is cancelled."""
QUIET_SECONDS: Final = 0.1
"""After this pause no task of earlier calls runs, so that the counted steps are those of the call."""
STEPS_MIN: Final = 20
"""The first step at which a call is cancelled is drawn below this number."""


class CancelledCalls:
    """Two clients and a topic of one partition; every `judge` uses a new subscription."""

    def __init__(
        self,
        topic: str,
        client: NativeClient,
        another: NativeClient,
        produce: Callable[[], Awaitable[None]],
        at_rest: Callable[[], Awaitable[None]],
    ) -> None:
        """Stores the arguments.

        Args:
            topic: has at least FOUND_AGAIN records.
            produce: appends one record to the topic.
            at_rest: called after a call was cancelled; may wait, and judge the state of the brokers.
        """
        self._topic = topic
        self._client = client
        self._another = another
        self._produce = produce
        self._at_rest = at_rest
        self._names = 0

    async def judge(self, call: str, kind: Type, step: int) -> bool:
        """Cancels a call of CALLS after `step` steps and judges the state; returns whether the call was cancelled.

        Raises:
            AssertionError: one of the rules does not hold.
        """
        self._names += 1
        name = f"cut-{self._names}"
        at = f"{call} of a consumer that is {kind}, cancelled after {step} steps"
        consumers: list[Consumer] = []
        if call != "subscribe":
            consumers.append(await self._subscribe(self._client, name, kind, at))
            for _ in range(FOUND_AGAIN):
                consumers[0].ack(await self._receive(consumers[0], at))
            await self._client.world.clock.sleep(QUIET_SECONDS)

        async def subscribe() -> None:
            consumers.append(await self._client.subscribe(self._topic, name, type=kind, initial_position="earliest"))

        cut = await cancelled_at(step, subscribe if call == "subscribe" else _begun(call, consumers[0]))
        await self._at_rest()
        if call == "close":
            await self._is_closed(consumers[0], at)
        elif not consumers:
            consumers.append(await self._subscribe(self._client, name, kind, at))
        if not consumers[0].closed:
            await self._goes_on(consumers[0], at)
            with _prompt(f"close after {at}"):
                await consumers[0].close()
        await self._all_is_there(name, kind, at)
        with _prompt(f"a second close after {at}"):
            await consumers[0].close()
        return cut

    async def judge_drawn(self, stream: Random, times: int) -> int:
        """Judges drawn calls at drawn steps; returns the number of cancelled ones. Raises as `judge`."""
        cut = 0
        cut_at = dict.fromkeys(CALLS, 0)
        for _ in range(times):
            call = stream.choice(CALLS)
            step = stream.randrange(STEPS_MIN + 2 * cut_at[call])
            if await self.judge(call, stream.choice(get_args(Type)), step):
                cut_at[call] = max(cut_at[call], step)
                cut += 1
        return cut

    async def _subscribe(self, client: NativeClient, name: str, kind: Type, at: str) -> Consumer:
        with _prompt(f"subscribe at {at}"):
            return await client.subscribe(self._topic, name, type=kind, initial_position="earliest")

    async def _receive(self, consumer: Consumer, at: str) -> Any:
        with _prompt(f"receive at {at}"):
            return await consumer.receive()

    async def _is_closed(self, consumer: Consumer, at: str) -> None:
        try:
            await self._receive(consumer, at)
        except ConsumerClosed:
            return
        raise AssertionError(f"a closed consumer received a record: {at}")

    async def _goes_on(self, consumer: Consumer, at: str) -> None:
        """Checks rule 1: the consumer receives a record that is written now."""
        await self._produce()
        end = await self._end()
        message = await self._receive(consumer, at)
        while message.offset < end - 1:
            consumer.ack(message)
            message = await self._receive(consumer, at)
        consumer.ack(message)

    async def _all_is_there(self, name: str, kind: Type, at: str) -> None:
        """Checks rules 3 and 4."""
        with _prompt(f"another client's subscribe after {at}"):
            while True:
                try:
                    consumer = await self._another.subscribe(self._topic, name, type=kind, initial_position="earliest")
                    break
                except SubscriptionTaken:  # the broker learns of the end on the other client's connection
                    await self._another.world.clock.sleep(0.01)
        with _prompt(f"another client's seek after {at}"):
            await consumer.seek("earliest")
        got = [
            (await self._receive(consumer, f"another client's consumer after {at}")).offset
            for _ in range(await self._end())
        ]
        assert got == list(range(len(got))), f"another client gets {got} after {at}"
        with _prompt(f"another client's unsubscribe after {at}"):
            await consumer.unsubscribe()
        with _prompt(f"stats after {at}"):
            try:
                stats = await consumer.stats()
            except NoSuchSubscription:
                return
        raise AssertionError(f"a deleted subscription exists, {stats}, after {at}")

    async def _end(self) -> int:
        """The number of records of the topic."""
        consumer = await self._another.subscribe(self._topic, "end", type="shared", initial_position="earliest")
        backlog = await consumer.backlog()
        await consumer.close()
        return backlog


async def cancel_calls(cluster: WireCluster, times: int, *, shadow: bool = False) -> int:
    """Cancels drawn calls at drawn steps, on a new topic or on a shadow of it.

    The scenario must not inject faults: under a fault a call may take longer than PROMPT_SECONDS.

    Returns:
        The number of calls that were cancelled before they ended.

    Raises:
        AssertionError: one of the rules does not hold.
    """
    source = topic = "cancelled"
    await create_topic(cluster, source, {})
    if shadow:
        topic = "cancelled-shadow"
        await cast_shadow(cluster, source, topic)
    log = LogHistory()
    addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
    producer = SimulatedProducer(cluster, source, {0: log}, name="writer")

    async def produce() -> None:
        producer.send(b"%d" % len(log.sends), 0)
        await producer.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for _ in range(FOUND_AGAIN):
            await produce()
        async with (
            connect(addresses, world=cluster.world, name="client") as client,
            connect(addresses, world=cluster.world, name="another") as another,
        ):
            calls = CancelledCalls(topic, client, another, produce, trio.lowlevel.checkpoint)
            cut = await calls.judge_drawn(cluster.world.random("cancelled calls"), times)
        nursery.cancel_scope.cancel()
    return cut


def _begun(call: str, consumer: Consumer) -> Callable[[], Awaitable[object]]:
    """The function that makes this call."""
    if call == "seek":
        return lambda: consumer.seek_to_offset(0, 1)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "close": consumer.close,
        "unsubscribe": consumer.unsubscribe,
        "seek to the start": lambda: consumer.seek("earliest"),
        "seek to the end": lambda: consumer.seek("latest"),
        "receive": consumer.receive,
        "stats": consumer.stats,
    }
    return calls[call]


@contextmanager
def _prompt(what: str) -> Iterator[None]:
    """Fails with the name of the call if it takes too long."""
    with trio.move_on_after(PROMPT_SECONDS) as scope:
        yield
    if scope.cancelled_caught:
        raise AssertionError(f"{what} took over {PROMPT_SECONDS:.0f} s")
