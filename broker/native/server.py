"""The native port of a broker: one RPC service, whose methods are registered in groups, the wings.

1. A method belongs to one wing: two wings never register the same name. Each method asks the authorizer for the
   operations that `native_table` names.
2. Every method checks its arguments (`arguments`): no input of a peer stops the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import trio

from gnomon.broker.native.connections import NativeConnections
from gnomon.broker.native.hosts import Hosts
from gnomon.broker.native.subscription_watch import SubscriptionWatch
from gnomon.client.errors import ERRORS
from gnomon.client.protocol import HEADS, SERVICE, WRITE_BYTES_MAX
from gnomon.runtime.logs import Logger
from gnomon.runtime.rpc.call import Method
from gnomon.runtime.rpc.server import ConnectionLimit, RpcServer
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import Listener, World

FRAME_BYTES_MAX = HEADS.bytes_max + WRITE_BYTES_MAX + 1024
"""`write` takes an attachment, no other method does."""


class NativeServer:
    """Serves the registered methods to native clients and to other brokers."""

    def __init__(
        self,
        world: World,
        log: Logger,
        cluster: str,
        tasks: OwnTasks,
        hosts: Hosts,
        connections: NativeConnections,
        watch: SubscriptionWatch,
        wings: Iterable[Mapping[str, Method]],
        limits: ConnectionLimit,
    ) -> None:
        """A server that does not listen yet; `run` must run before it does.

        Args:
            tasks: those of the calls; the server runs them.
            cluster: the cluster's id; a client that names another one is refused.
            wings: the methods of each wing, by name.
            limits: of the number of connections.
        """
        self.hosts = hosts
        self.connections = connections
        self.watch = watch
        self._tasks = tasks
        self._methods: dict[str, Method] = {}
        for methods in wings:
            self._register(methods)
        self._server = RpcServer(
            world,
            SERVICE,
            self._methods,
            ERRORS,
            log,
            cluster=cluster,
            heads=HEADS,
            frame_bytes_max=FRAME_BYTES_MAX,
            limits=limits,
        )

    def _register(self, methods: Mapping[str, Method]) -> None:
        twice = self._methods.keys() & methods.keys()
        assert not twice, f"two wings register {', '.join(sorted(twice))}"
        self._methods.update(methods)

    @property
    def methods(self) -> Set[str]:
        """The names of the served methods."""
        return self._methods.keys()

    async def listen(self, host: str, port: int) -> Listener:
        """Accepts connections from now on.

        Raises:
            AddressTaken: the address is in use or not one of this machine.
        """
        return await self._server.listen(host, port)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of calls and hosted partitions until it is cancelled, which ends every connection."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            await nursery.start(self.hosts.run)
            nursery.start_soon(self._server.run)
            nursery.start_soon(self.watch.run)
            task_status.started()

    async def stop(self) -> None:
        """Stores all acknowledgements, then ends every connection."""
        await self.hosts.end()
        self._server.close()
