"""One run of a node on a machine. Every call between the node and its simulated world passes a check here.

1. After `killed` is set, the world does not call into the node any more, and every call of the node into its world
   raises `NodeKilled`. This is a BaseException, so that no `except Exception` of the node goes on, and no `finally` of
   the node reaches the world.
2. Resources die before tasks: first `killed` is set, then the node's tasks are cancelled.
3. An exception of a node that was not killed is a failure of the simulation, unless the node was expected to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

T = TypeVar("T")
P = ParamSpec("P")


class NodeKilled(BaseException):
    """The node was killed or lost its power: nothing that it does reaches disk, network or clock any more."""


class SimulatedProcess:
    """One run of a node on a machine; made by `Machine.start`.

    Attributes:
        machine_name: the name of the machine.
        number: the number of the start on this machine, from 1.
        name: both of them, as in `broker-1#2`.
        started: virtual seconds at its start.
        killed: whether it was killed or lost its power.
        may_stop: set by a fault for which a node has to stop, such as a failed disk: then a `WorldError` of the node
            is not a failure.
        stop_requested: set by SIGTERM, if the node asked for it: see `SimulatedWorld.stop_requested`.
        ended: set when it has ended, in whichever way.
    """

    def __init__(
        self, machine_name: str, number: int, report: Callable[[SimulatedProcess, BaseException], None], started: float
    ) -> None:
        self.machine_name = machine_name
        self.number = number
        self.name = f"{machine_name}#{number}"
        self.started = started
        self.killed = False
        self.may_stop = False
        self.stop_requested: trio.Event | None = None
        self.ended = trio.Event()
        self.scope = trio.CancelScope()
        self._report = report

    def check(self) -> None:
        """Called first in every function that a node may call.

        Raises:
            NodeKilled: the node is dead.
        """
        if self.killed:
            raise NodeKilled(f"{self.name} was killed: its world is closed")

    def call(self, callback: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Calls into the node, unless it is dead; an error of the callback stops the node."""
        if self.killed:
            return None
        try:
            return callback(*args, **kwargs)
        except Exception as error:
            self.crash(error)
            return None

    def crash(self, error: BaseException) -> None:
        """The node ended with an error of its own."""
        self._report(self, error)
