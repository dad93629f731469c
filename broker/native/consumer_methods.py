"""Methods of the native service that attached consumers call: the stream of deliveries, permits, acknowledgements.

1. A call that names many consumers is executed in several turns of the event loop, if the broker's allowance of
   subscription work for one turn (`rounds`) is spent before its end.
2. A consumer that is not attached on the call's connection is ignored.
3. Permits are granted only to consumers that are authorized at the authorizer's present revision. The other consumers
   are detached, and notified to attach again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, group, topic
from gnomon.broker.native.arguments import checked, groups, numbers_of
from gnomon.broker.native.connection import Host, LaneConsumer, NativeConnection
from gnomon.broker.native.connections import NativeConnections
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.client.errors import InvalidCall
from gnomon.log.entry import Offset
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.world import Clock

GROUP_UNITS = 4
"""The price of checking one group of a call; see `Allowance`."""
Steps: TypeAlias = Iterator[None]
"""The acts of a call for one consumer; other work may run between two of them."""


class ConsumerMethods:
    """`receive`, `close_consumers`, `flow`, `ack`, `ack_up_to` and `nack`."""

    def __init__(self, access: NativeAccess, connections: NativeConnections, rounds: Rounds, clock: Clock) -> None:
        self._access = access
        self._connections = connections
        self._rounds = rounds
        self._clock = clock

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "receive": self._connections.open,
            "close_consumers": self._close_consumers,
            "flow": self._flow,
            "ack": self._ack,
            "ack_up_to": self._ack_up_to,
            "nack": self._nack,
        }

    def _close_consumers(self, call: Call) -> None:
        (packed,) = checked(call.args, bytes)
        connection = self._connections.of(call)
        self._connections.in_turns(connection.close_consumers(numbers_of(packed)), call, call.reply)

    def _flow(self, call: Call) -> None:
        def flow(consumer: LaneConsumer, permits: int) -> Steps:
            consumer.channel.host.dispatcher.flow(consumer, permits)
            yield

        connection = self._connections.of(call)
        self._for_each(call, 2, flow, before=self._send_refused_away(connection, call))

    def _send_refused_away(self, connection: NativeConnection, call: Call) -> Iterator[Host]:
        """Sends away the consumers of a connection that the authorizer refuses now; asks only if decisions changed."""
        revision = self._access.revision
        if connection.revision == revision:
            return
        connection.revision = revision
        question = self._access.question(NativeMethod.FLOW, call.peer)
        for consumer in list(connection.consumers.values()):
            self._rounds.spend(1)
            lane = consumer.channel
            needs = (topic(lane.topic), group(consumer.subscription.name))
            if not consumer.gone and not all(question.allows(Operation.READ, resource) for resource in needs):
                lane.host.send_away([consumer])
            yield lane.host

    def _ack(self, call: Call) -> None:
        def ack(consumer: LaneConsumer, first: int, end: int) -> Steps:
            dispatcher = consumer.channel.host.dispatcher
            for start, stop in dispatcher.pieces_of(consumer, first, end):
                dispatcher.ack(consumer, Offset(start), Offset(stop))
                yield

        self._for_each(call, 3, ack)

    def _ack_up_to(self, call: Call) -> None:
        def ack_up_to(consumer: LaneConsumer, end: int) -> Steps:
            if consumer.subscription.shared:
                raise InvalidCall("other consumers may hold earlier records: acknowledge records one by one")
            consumer.channel.host.dispatcher.ack_up_to(consumer, Offset(end))
            yield

        self._for_each(call, 2, ack_up_to)

    def _nack(self, call: Call) -> None:
        now = self._clock.monotonic()

        def nack(consumer: LaneConsumer, first: int, end: int, delay_ms: int) -> Steps:
            dispatcher = consumer.channel.host.dispatcher
            for start, stop in dispatcher.pieces_of(consumer, first, end):
                dispatcher.nack(consumer, Offset(start), Offset(stop), now + delay_ms / 1000, now)
                yield

        self._for_each(call, 4, nack)

    def _for_each(self, call: Call, fields: int, act: Callable[..., Steps], *, before: Iterable[Host] = ()) -> None:
        """Acts on each consumer that the last field of a group names, with the other fields of the group.

        Args:
            before: steps that come first; each gives the partition that it has changed.
        """
        consumers, rounds = self._connections.of(call).consumers, self._rounds

        def steps() -> Iterator[Host | None]:
            yield from before
            for *given, packed in groups(call.args, fields):
                rounds.spend(GROUP_UNITS)
                for number in numbers_of(packed):
                    rounds.spend(1)
                    consumer = consumers.get(number)
                    if consumer is None:
                        yield None
                        continue
                    for _ in act(consumer, *given):
                        yield consumer.channel.host

        self._connections.in_turns(steps(), call)
