"""Makes node code (the program under test) raise if it bypasses its injected world in a simulation.

The banned calls are the clock, the global random functions, the system's entropy, sockets and threads. `ruff` bans
their names in the source; the guard catches the calls at run time, also through the standard library.

A call is judged by the first frame above it that is not the standard library's. If that frame is node code, the call
raises `OutsideWorld`; Trio, LMDB, Hypothesis and the harness may make the call. Names imported before the simulation
(`from time import monotonic`) are replaced in the node's modules. `datetime.now` and an unseeded `random.Random()`
belong to C types, which the guard cannot change: only ruff finds them.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinMethodType, FrameType, MethodType, ModuleType
from typing import Any
from unittest.mock import patch

import trio

HARNESS = "gnomon.testing"
_STANDARD = frozenset(sys.stdlib_module_names) - {"logging"}  # a log line may contain its time

_BANNED: tuple[tuple[Any, tuple[str, ...], str], ...] = (
    (
        time,
        ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"),
        "time comes from world.clock",
    ),
    (
        random,
        tuple(
            name
            for name in random.__all__
            if isinstance(getattr(random, name), MethodType | BuiltinMethodType)
            and getattr(random, name).__self__ is random._inst
        ),
        "randomness comes from world.random(name)",
    ),
    (random, ("_urandom",), "randomness comes from world.random(name)"),
    (os, ("urandom",), "randomness comes from world.random(name)"),
    (uuid, ("uuid1", "uuid4"), "randomness comes from world.random(name)"),
    (socket.socket, ("__init__",), "streams come from world.network"),
    (threading.Thread, ("start",), "blocking work goes through world.blocking"),
    (trio.to_thread, ("run_sync",), "blocking work goes through world.blocking"),
)


class OutsideWorld(AssertionError):
    """Node code bypassed its world; in production that works, in simulation it would break determinism."""


@contextmanager
def guard(node_packages: tuple[str, ...]) -> Iterator[None]:
    """Guards the calls of these packages, the harness excepted, until the block ends."""
    with ExitStack() as stack:
        replaced: dict[int, Callable[..., Any]] = {}
        for owner, names, advice in _BANNED:
            for name in names:
                original = getattr(owner, name)
                guarded = _guarded(original, f"{getattr(owner, '__name__', owner)}.{name}", advice, node_packages)
                stack.enter_context(patch.object(owner, name, guarded))
                replaced[id(original)] = guarded
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and _is_node(module.__name__, node_packages):
                for name, value in list(vars(module).items()):
                    if id(value) in replaced:
                        stack.enter_context(patch.object(module, name, replaced[id(value)]))
        yield


def _guarded(
    original: Callable[..., Any], name: str, advice: str, node_packages: tuple[str, ...]
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = _caller(sys._getframe(1))
        if _is_node(caller, node_packages):
            raise OutsideWorld(f"{caller} called {name} in a simulation: {advice}")
        return original(*args, **kwargs)

    return call


def _caller(frame: FrameType | None) -> str:
    """The first module on the way up that is not of the standard library."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _STANDARD:
            return name
        frame = frame.f_back
    return ""


def _is_node(module: str, node_packages: tuple[str, ...]) -> bool:
    inside = any(module == package or module.startswith(f"{package}.") for package in node_packages)
    return inside and module != HARNESS and not module.startswith(f"{HARNESS}.")
