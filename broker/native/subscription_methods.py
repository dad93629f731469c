"""Methods of the native service that change or describe subscriptions.

1. If a `subscribe` call is over before its answer (the client cancelled it or is gone), none of its consumers stays
   attached.
2. A consumer that was closed while it was being attached is not attached.
3. At most ATTACHED_AT_ONCE consumers are attached in one turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from gnomon.broker.authorization.native_access import NativeAccess, NativeQuestion
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, group, topic
from gnomon.broker.native.arguments import checked, subscribe_args
from gnomon.broker.native.connection import Lane, NativeConnection
from gnomon.broker.native.connections import NativeConnections
from gnomon.broker.native.hosts import Hosts
from gnomon.broker.native.subscription_admin import Allowed, SubscriptionAdmin
from gnomon.broker.native.subscription_watch import SubscriptionWatch
from gnomon.broker.native.translated import in_translated_task
from gnomon.broker.subscriptions.dispatcher import ConsumerRefused
from gnomon.broker.subscriptions.subscription import SubscriptionType
from gnomon.client.errors import (
    ERRORS,
    InvalidCall,
    NativeError,
    NoSuchSubscription,
    NotLeader,
    SubscriptionTaken,
)
from gnomon.log.entry import Offset
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks

ATTACHED_AT_ONCE = 50
"""Consumers attached in one turn: 2 to 5 ms, in which the broker serves nobody else."""


class SubscriptionMethods:
    """The methods about whole subscriptions: they create, list, describe, move and delete them."""

    def __init__(
        self,
        access: NativeAccess,
        hosts: Hosts,
        connections: NativeConnections,
        admin: SubscriptionAdmin,
        watch: SubscriptionWatch,
        tasks: Tasks,
    ) -> None:
        self._access = access
        self._admin = admin
        self._watch = watch
        self._hosts = hosts
        self._connections = connections
        self._tasks = tasks
        self._attaching = trio.Lock()
        """Held while ATTACHED_AT_ONCE consumers are attached: other tasks run between one holder and the next."""

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "subscribe": self._subscribe,
            "unsubscribe": in_translated_task(self._tasks, self._unsubscribe),
            "seek": in_translated_task(self._tasks, self._seek),
            "stats": in_translated_task(self._tasks, self._stats),
            "subscriptions": in_translated_task(self._tasks, self._subscriptions),
            "describe_subscription": in_translated_task(self._tasks, self._describe),
            "is_idle": in_translated_task(self._tasks, self._is_idle),
            "idle_subscriptions": in_translated_task(self._tasks, self._idle),
        }

    def _subscribe(self, call: Call) -> None:
        connection = self._connections.of(call)
        name, index, kind, initial, items = subscribe_args(call.args)
        numbers = [item[1] for item in items]
        connection.awaited.update(numbers)  # in the turn of the call: `close_consumers` may arrive in the same turn

        async def attach(call: Call) -> object:
            try:
                return await self._attach(call, connection, name, index, kind, initial, items)
            finally:
                connection.awaited.difference_update(numbers)
                if call.over:  # the client will not receive the answer
                    self._connections.in_turns(connection.close_consumers(numbers), call)

        in_translated_task(self._tasks, attach)(call)

    async def _attach(
        self,
        call: Call,
        connection: NativeConnection,
        name: str,
        index: int,
        kind: SubscriptionType,
        initial: str,
        items: list[Any],
    ) -> object:
        question, revision = self._access.question(NativeMethod.SUBSCRIBE, call.peer), self._access.revision
        question.check(Operation.READ, topic(name))
        refused = {
            each: ERRORS.encode(question.refusal(Operation.READ, group(each)))
            for each in {item[0] for item in items}
            if not question.allows(Operation.READ, group(each))
        }
        host = await self._hosts.host(name, index)
        log = host.partition.log
        if log is None:
            raise NotLeader(f"partition {index} of topic '{name}' has just moved to another broker")
        await host.create(
            [item[0] for item in items if item[0] not in refused],
            log.start_offset if initial == "earliest" else log.high_watermark,
        )
        connection.revision = min(connection.revision, revision)  # decisions may have changed meanwhile
        results: list[object] = []
        for at in range(0, len(items), ATTACHED_AT_ONCE):
            async with self._attaching:
                if host.ended:
                    raise NotLeader(f"partition {index} of topic '{name}' has just moved to another broker")
                if connection.gone:
                    raise InvalidCall("the connection is gone")
                lane = connection.lane(host, name)
                results += [
                    refused.get(item[0]) or attach_consumer(lane, connection, kind, item)
                    for item in items[at : at + ATTACHED_AT_ONCE]
                ]
        host.pump()
        return results

    async def _unsubscribe(self, call: Call) -> None:
        name, index, subscriber, client, really = checked(call.args, str, int, str, str, bool)
        question = self._access.question(NativeMethod.UNSUBSCRIBE, call.peer)
        question.check(Operation.READ, topic(name))
        question.check(Operation.DELETE, group(subscriber))
        await self._admin.delete(name, index, subscriber, client, really)

    async def _seek(self, call: Call) -> Offset:
        name, index, subscriber, where, to = checked(call.args, str, int, str, str, list)
        question = self._access.question(NativeMethod.SEEK, call.peer)
        question.check(Operation.READ, topic(name))
        question.check(Operation.READ, group(subscriber))
        return await self._admin.seek(name, index, subscriber, where, to)

    async def _stats(self, call: Call) -> object:
        name, index, names = checked(call.args, str, int, list)
        checked(names, *[str] * len(names))
        question = self._access.question(NativeMethod.STATS, call.peer)
        question.check(Operation.DESCRIBE, topic(name))
        return await self._admin.stats(name, index, names, _described_to(question))

    async def _subscriptions(self, call: Call) -> object:
        name, index, after, count = checked(call.args, str, int, str, int)
        question = self._access.question(NativeMethod.SUBSCRIPTIONS, call.peer)
        question.check(Operation.DESCRIBE, topic(name))
        return list(await self._admin.page(name, index, after, count, _described_to(question)))

    async def _describe(self, call: Call) -> object:
        name, index, subscriber = checked(call.args, str, int, str)
        question = self._access.question(NativeMethod.DESCRIBE_SUBSCRIPTION, call.peer)
        question.check(Operation.DESCRIBE, topic(name))
        question.check(Operation.DESCRIBE, group(subscriber))
        return await self._admin.describe(name, index, subscriber)

    async def _is_idle(self, call: Call) -> bool:
        """See `SubscriptionWatch.is_idle`; the caller is the broker that leads the source."""
        name, index, subscriber, end = checked(call.args, str, int, str, int)
        question = self._access.question(NativeMethod.IS_IDLE, call.peer)
        question.check(Operation.DESCRIBE, topic(name))
        question.check(Operation.DESCRIBE, group(subscriber))
        return self._watch.is_idle(await self._hosts.led(name, index), index, subscriber, end)

    async def _idle(self, call: Call) -> object:
        """The idle subscriptions that keep records, of this broker or of all brokers."""
        (everywhere,) = checked(call.args, bool)
        self._access.question(NativeMethod.IDLE_SUBSCRIPTIONS, call.peer).check(Operation.DESCRIBE)
        return await self._watch.everywhere() if everywhere else self._watch.rows()


def _described_to(question: NativeQuestion) -> Allowed:
    return lambda name: question.allows(Operation.DESCRIBE, group(name))


def attach_consumer(lane: Lane, connection: NativeConnection, kind: SubscriptionType, item: list[Any]) -> object:
    """Attaches one consumer; returns the epoch of its cursor, or an encoded error of the protocol."""
    name, number, client, permits = item
    host = lane.host
    dispatcher = host.dispatcher
    subscription = dispatcher.subscriptions.get(name)
    try:
        if number not in connection.awaited:
            raise InvalidCall(f"consumer {number} was closed while it was attached")
        if subscription is None:
            raise NoSuchSubscription(f"subscription {name!r} was deleted meanwhile")
        dispatcher.check(subscription, kind, client)
    except ConsumerRefused as error:
        return ERRORS.encode(SubscriptionTaken(str(error)))
    except NativeError as error:
        return ERRORS.encode(error)
    before = connection.consumers.get(number)
    if before is not None:
        before.channel.host.dispatcher.detach(before)
    host.send_away([one for one in subscription.consumers if one.client == client])
    consumer = dispatcher.attach(subscription, kind, lane, number, client, permits)
    connection.consumers[number] = consumer
    host.attached(consumer)
    return subscription.cursor_epoch
