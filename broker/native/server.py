"""The native front door: subscriptions over RPC.

Every argument is checked (`arguments`): what a peer sends never stops the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.native.arguments import checked, groups, numbers_of, subscribe_args
from gnomon.broker.native.connection import NativeConnection, host_of
from gnomon.broker.native.errors import (
    ERRORS,
    SERVICE,
    InvalidCall,
    NativeError,
    NoSuchSubscription,
    NoSuchTopic,
    NotLeader,
    SubscriptionTaken,
    Unavailable,
)
from gnomon.broker.native.hosts import HostKey, Hosts, OpenStore
from gnomon.broker.partition.entry import Offset
from gnomon.broker.shadow.listening import Listening
from gnomon.broker.subscriptions.dispatcher import ConsumerRefused
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.hosted_partition import STORE_ERRORS, HostedPartition
from gnomon.broker.subscriptions.store import InvalidSubscriber, SubscriptionsStore
from gnomon.broker.subscriptions.stores import subscriptions_store
from gnomon.broker.subscriptions.subscription import Consumer, Subscription, SubscriptionType
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import Compare, Field
from gnomon.runtime.rpc_call import Call, Method, in_task
from gnomon.runtime.rpc_server import RpcServer
from gnomon.runtime.settings import SubscriptionsSettings
from gnomon.runtime.world import Listener
from gnomon.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

NAMES_MAX = 1000
"""Subscriptions that one answer describes."""
ATTACHED_AT_ONCE = 100
"""Consumers: work for 3 ms, during which nobody else is served."""


class NativeServer:
    """Serves native clients for one broker; `open_store` gives the positions of a topic's partition."""

    def __init__(
        self, broker: Broker, nursery: trio.Nursery, settings: SubscriptionsSettings, open_store: OpenStore
    ) -> None:
        self._broker = broker
        self._nursery = nursery
        self._connections: dict[object, NativeConnection] = {}
        self._hosts = Hosts(broker, nursery, settings, open_store)
        self._attaching = trio.Lock()
        """Held for ATTACHED_AT_ONCE consumers; whoever waits for it has let all others have their turn."""
        self._server = RpcServer(
            broker.world, SERVICE, self._methods(), ERRORS, broker.log, cluster=broker.cluster_id or None
        )
        broker.metrics.watch("native_connections", "Native clients connected", lambda: len(self._connections))
        broker.metrics.watch(
            "subscriptions", "Durable subscriptions of partitions in use", lambda: self._hosts.subscriptions
        )

    async def listen(self, host: str, port: int) -> Listener:
        """Takes connections from now on.

        Raises:
            AddressTaken: the address is in use or not one of this machine.
        """
        listener = await self._server.listen(host, port)
        self._nursery.start_soon(self._server.run)
        self._nursery.start_soon(self._hosts.flush_regularly)
        return listener

    async def stop(self) -> None:
        """Stores what was acknowledged, and ends every connection."""
        await self._hosts.end()
        self._server.close()

    def hosted(self) -> Iterable[tuple[HostKey, HostedPartition]]:
        """The partitions whose subscriptions are in use here, by topic id and number."""
        return self._hosts.all()

    def _methods(self) -> Mapping[str, Method]:
        return {
            "receive": self._receive,
            "lookup": self._task(self._lookup),
            "subscribe": self._task(self._subscribe),
            "unsubscribe": self._task(self._unsubscribe),
            "seek": self._task(self._seek),
            "stats": self._task(self._stats),
            "close_consumers": self._close_consumers,
            "flow": self._flow,
            "ack": self._ack,
            "ack_up_to": self._ack_up_to,
            "nack": self._nack,
            **Listening(self._broker).methods(),
        }

    def _task(self, work: Callable[[Call], Awaitable[object]]) -> Method:
        async def translated(call: Call) -> object:
            try:
                return await work(call)
            except InvalidSubscriber as error:
                raise InvalidCall(str(error)) from error
            except STORE_ERRORS as error:
                raise Unavailable(f"{error}; whether it was done is unknown") from error
            except KafkaError as error:
                raise _native(error) from error

        return in_task(self._nursery, translated)

    # --- connections --------------------------------------------------------------------------------------------

    def _receive(self, call: Call) -> None:
        if not call.streams:
            raise InvalidCall("receive is a stream: open it")
        if call.connection in self._connections:
            raise InvalidCall("the connection has a stream of deliveries already")
        connection = self._connections[call.connection] = NativeConnection(call)
        call.let_others_pass()  # a frame of acknowledgements is work for a millisecond, and a hundred come at once

        def gone() -> None:
            del self._connections[call.connection]
            connection.close()

        call.cancelled = gone
        self._nursery.start_soon(connection.watch_room)

    def _connection(self, call: Call) -> NativeConnection:
        connection = self._connections.get(call.connection)
        if connection is None:
            raise InvalidCall("open the stream of deliveries (receive) first")
        return connection

    # --- topics and partitions ----------------------------------------------------------------------------------

    async def _lookup(self, call: Call) -> object:
        (name,) = checked(call.args, str)
        await self._broker.topic_admin.find(name)
        topic = self._broker.find_topic(name)
        brokers = self._broker.leadership.brokers
        leaders = []
        for number in self._broker.leaders(topic, topic.partitions):
            leader = brokers.get(number)
            leaders.append(None if leader is None else [leader.host, leader.native_port])
        return [topic.id.hex, leaders]

    # --- subscribing --------------------------------------------------------------------------------------------

    async def _subscribe(self, call: Call) -> object:
        name, index, kind, initial, items = subscribe_args(call.args)
        connection = self._connection(call)
        host = await self._hosts.host(name, index)
        log = host.partition.log
        if log is None:
            raise NotLeader(f"partition {index} of topic '{name}' has just gone to another broker")
        await host.create(
            [item[0] for item in items], log.start_offset if initial == "earliest" else log.high_watermark
        )
        results: list[object] = []
        for at in range(0, len(items), ATTACHED_AT_ONCE):
            async with self._attaching:
                if host.ended:
                    raise NotLeader(f"partition {index} of topic '{name}' has just gone to another broker")
                if connection.gone:
                    raise InvalidCall("the connection is gone")
                results += [_attached(host, connection, kind, item) for item in items[at : at + ATTACHED_AT_ONCE]]
        host.pump()
        return results

    async def _unsubscribe(self, call: Call) -> None:
        name, index, subscriber, client, really = checked(call.args, str, int, str, str, bool)
        host = await self._hosts.host(name, index)
        subscription = _subscription(host, subscriber)
        if any(consumer.client != client for consumer in subscription.consumers):
            raise SubscriptionTaken(f"subscription {subscriber!r} has other consumers: close them first")
        if really:  # else it was asked whether it may be
            await host.delete(subscription, client)

    async def _seek(self, call: Call) -> None:
        name, index, subscriber, where, to = checked(call.args, str, int, str, str, list)
        host = await self._hosts.host(name, index)
        subscription = _subscription(host, subscriber)
        await host.seek(subscription, await _offset(host, where, to))

    async def _stats(self, call: Call) -> object:
        name, index, names = checked(call.args, str, int, list)
        if not all(type(each) is str for each in names):
            raise InvalidCall("subscriptions are named by text")
        host = await self._hosts.host(name, index)
        subscriptions = host.dispatcher.subscriptions
        wanted = names or list(subscriptions)
        if len(wanted) > NAMES_MAX:
            raise InvalidCall(f"name at most {NAMES_MAX} subscriptions at a time; there are {len(subscriptions)}")
        for each in names:
            _check_in_reach(host, each)
        return {each: _described(host, subscriptions[each]) for each in wanted if each in subscriptions}

    def _close_consumers(self, call: Call) -> None:
        connection = self._connection(call)
        (packed,) = checked(call.args, bytes)
        for number in numbers_of(packed):
            consumer = connection.consumers.pop(number, None)
            if consumer is not None:
                host = host_of(consumer)
                host.dispatcher.detach(consumer)
                host.pump()
        call.reply()

    # --- what consumers say -------------------------------------------------------------------------------------

    def _flow(self, call: Call) -> None:
        connection = self._connection(call)
        hosts: dict[HostedPartition, None] = {}
        for permits, packed in groups(call.args, 2):
            for number in numbers_of(packed):
                consumer = connection.consumers.get(number)
                if consumer is not None:
                    host = host_of(consumer)
                    host.dispatcher.flow(consumer, permits)
                    hosts[host] = None
        for host in hosts:
            host.pump()

    def _ack(self, call: Call) -> None:
        consumers = self._connection(call).consumers
        hosts: dict[HostedPartition, None] = {}
        for first, end, packed in groups(call.args, 3):
            for number in numbers_of(packed):
                consumer = consumers.get(number)
                if consumer is not None:
                    host = host_of(consumer)
                    host.dispatcher.ack(consumer, first, end)
                    hosts[host] = None
        for host in hosts:
            host.pump()

    def _ack_up_to(self, call: Call) -> None:
        consumers = self._connection(call).consumers
        asked = [
            (consumers[number], Offset(end))
            for end, packed in groups(call.args, 2)
            for number in numbers_of(packed)
            if number in consumers
        ]
        if any(consumer.subscription.shared for consumer, _ in asked):
            raise InvalidCall("other consumers may hold what comes before: acknowledge records one by one")
        for consumer, end in asked:
            host_of(consumer).dispatcher.ack_up_to(consumer, end)
        for host in {host_of(consumer): None for consumer, _ in asked}:
            host.pump()

    def _nack(self, call: Call) -> None:
        consumers = self._connection(call).consumers
        now = self._broker.world.clock.monotonic()
        hosts: dict[HostedPartition, None] = {}
        for first, end, delay_ms, packed in groups(call.args, 4):
            for number in numbers_of(packed):
                consumer = consumers.get(number)
                if consumer is not None:
                    host = host_of(consumer)
                    host.dispatcher.nack(consumer, Offset(first), Offset(end), now + delay_ms / 1000, now)
                    hosts[host] = None
        for host in hosts:
            host.set_timer()
            host.pump()


def open_native_server(broker: Broker, nursery: trio.Nursery, settings: SubscriptionsSettings) -> NativeServer:
    """The native front end of a broker that was started; it serves once it is told to listen."""

    def open_store(topic: Topic, index: int) -> SubscriptionsStore:
        # Not `broker.claimant`, which a broker that drains does not fulfil: what it stores last was acknowledged, too.
        lives = Compare(topic_key(topic.name), Field.CREATE_REVISION, topic.create_revision)
        return subscriptions_store(
            settings,
            broker.metadata,
            broker.bookies,
            topic.id,
            index,
            quorum=broker.quorum,
            source_id=topic.ranked_as,
            claimant=(lives,),
        )

    return NativeServer(broker, nursery, settings, open_store)


def _native(error: KafkaError) -> NativeError:
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return NotLeader(str(error))
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return NoSuchTopic(str(error))
    return Unavailable(str(error))


def _attached(host: HostedPartition, connection: NativeConnection, kind: SubscriptionType, item: list[Any]) -> object:
    """Adds one consumer; the epoch of its cursor, or the error's name, fields and text."""
    name, number, client, permits = item
    dispatcher = host.dispatcher
    subscription = dispatcher.subscriptions.get(name)
    try:
        if subscription is None:
            _check_in_reach(host, name)
            raise NoSuchSubscription(f"subscription {name!r} was deleted meanwhile")
        dispatcher.check(subscription, kind, client)
    except ConsumerRefused as error:
        return ERRORS.encode(SubscriptionTaken(str(error)))
    except NativeError as error:
        return ERRORS.encode(error)
    before = connection.consumers.get(number)
    if before is not None:
        host_of(before).dispatcher.detach(before)
    consumer = dispatcher.attach(subscription, kind, connection.lane(host), number, client, permits)
    connection.consumers[number] = consumer
    host.attached(consumer)
    return subscription.cursor_epoch


def _subscription(host: HostedPartition, name: str) -> Subscription:
    subscription = host.dispatcher.subscriptions.get(name)
    if subscription is None:
        _check_in_reach(host, name)
        raise NoSuchSubscription(f"there is no subscription {name!r}")
    return subscription


def _check_in_reach(host: HostedPartition, name: str) -> None:
    if name in host.out_of_reach:
        raise Unavailable(f"where subscription {name!r} stands cannot be read: bookies are away; try again later")


async def _offset(host: HostedPartition, where: str, to: list[Any]) -> Offset:
    """Where a seek goes."""
    log = host.partition.log
    if log is None:
        raise NotLeader("the partition has just gone to another broker")
    if where == "earliest":
        return log.start_offset
    if where == "latest":
        return log.high_watermark
    if where == "offset":
        (offset,) = checked(to, int)
        return Offset(min(max(offset, log.start_offset), log.high_watermark))
    if where == "id":
        try:
            return await host.positions.offset_of(Dlsn.decode(to))
        except ValueError as error:
            raise InvalidCall(str(error)) from error
    if where == "time":
        (timestamp_ms,) = checked(to, int)
        found = await host.partition.offset_for_timestamp(timestamp_ms)
        return log.high_watermark if found is None else found[0]
    raise InvalidCall(f"seek to 'earliest', 'latest', 'offset', 'id' or 'time', not {where!r}")


def _described(host: HostedPartition, subscription: Subscription) -> dict[str, object]:
    consumers: tuple[Consumer, ...] = subscription.consumers
    return {
        "type": subscription.kind.value if consumers else None,
        "consumers": len(consumers),
        "offset": subscription.cursor.mark_delete,
        "acknowledged_ahead": len(subscription.cursor.ranges),
        "backlog": subscription.backlog(host.dispatcher.end),
    }
