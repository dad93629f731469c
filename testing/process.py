"""One run of a node on a machine: the handle by which the simulated world stops talking to it.

1. After `killed` is set no world calls into the node any more, and every call of the node into its world raises
   `NodeKilled`: it is a BaseException, so that no `except Exception` and no `finally` of the node gets past it.
2. Resources die before tasks: `killed` is set first, the node's tasks are cancelled after that.
3. An exception out of a node that was not killed is a failure of the simulation, unless the node was expected to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

T = TypeVar("T")
P = ParamSpec("P")


class NodeKilled(BaseException):
    """The node was killed or lost its power: nothing that it does reaches disk, wire or clock any more."""


class Process:
    """Made by `Machine.start`; `name` is the machine's name with the number of the start, as in `broker-1#2`."""

    def __init__(
        self, machine_name: str, number: int, report: Callable[[Process, BaseException], None], started: float
    ) -> None:
        self.machine_name = machine_name
        self.number = number
        self.name = f"{machine_name}#{number}"
        self.started = started
        """Virtual seconds at its start."""
        self.killed = False
        self.may_stop = False
        """Set by a fault that a node has to stop for, such as a failed disk: then its error is not a failure."""
        self.stop_requested: trio.Event | None = None
        """Set by SIGTERM, where the node asked for it: see `SimulatedWorld.stop_requested`."""
        self.ended = trio.Event()
        self.scope = trio.CancelScope()
        self._report = report

    def check(self) -> None:
        """Stands at the head of everything that a node may call.

        Raises:
            NodeKilled: the node is dead.
        """
        if self.killed:
            raise NodeKilled(f"{self.name} was killed: its world is closed")

    def call(self, callback: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Calls into the node, unless it is dead; what the callback raises stops the node."""
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
