"""The connections of native clients to one broker, and the calls that take several turns of the event loop.

1. The calls of a connection take effect in their order, also when one of them takes several turns.
2. A turn of the event loop spends at most the allowance of `Rounds` on these calls, plus the rest of the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gnomon.broker.native.connection import Host, NativeConnection
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.client.errors import InvalidCall
from gnomon.runtime.rpc.call import Call
from gnomon.runtime.tasks import Tasks


class NativeConnections:
    """The native connections that have a stream of deliveries."""

    def __init__(self, tasks: Tasks, rounds: Rounds) -> None:
        self._tasks = tasks
        self._rounds = rounds
        self._connections: dict[object, NativeConnection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[NativeConnection]:
        return iter(list(self._connections.values()))

    def open(self, call: Call) -> None:
        """Opens the stream of deliveries of the call's connection.

        Raises:
            InvalidCall: the call is not a stream, or the connection has one already.
        """
        if not call.streams:
            raise InvalidCall("receive is a stream: open it")
        if call.connection in self._connections:
            raise InvalidCall("the connection has a stream of deliveries already")
        connection = self._connections[call.connection] = NativeConnection(call)
        call.let_others_pass()  # one frame of acknowledgements takes a millisecond, and a hundred frames come at once

        def gone() -> None:
            del self._connections[call.connection]
            self.in_turns(connection.close(), call)

        call.cancelled = gone
        self._tasks.start_soon(connection.watch_room)

    def of(self, call: Call) -> NativeConnection:
        """The connection of a call.

        Raises:
            InvalidCall: the connection has no stream of deliveries.
        """
        connection = self._connections.get(call.connection)
        if connection is None:
            raise InvalidCall("open the stream of deliveries (receive) first")
        return connection

    def in_turns(self, steps: Iterator[Host | None], call: Call, done: Callable[[], None] | None = None) -> None:
        """Takes the steps of a call in this turn and later ones; later calls of its connection wait.

        After the last step it calls `done`, and delivers the due records of the partitions that the steps named.
        """
        rounds = self._rounds
        hosts: dict[Host | None, None] = {}

        def put_off() -> None:
            call.hold_up(True)
            rounds.put_off(go_on)

        def go_on() -> None:
            try:
                for host in steps:
                    hosts[host] = None
                    if rounds.left <= 0:
                        put_off()
                        return
                if done is not None:
                    done()
            except InvalidCall as error:
                call.fail(error)
            except MemoryError as error:
                call.without_memory(error)
            for host in filter(None, hosts):
                host.pump()
            call.hold_up(False)

        (go_on if rounds.open else put_off)()
