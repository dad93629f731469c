"""The connections of one Python process of Spark: made when they are first used, kept from task to task."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple, TypeVar

import trio

from gnomon.client.addresses import Address
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.log.plans.planned_bookies import PlannedBookies, planned_bookies
from gnomon.runtime.trio_thread import TrioThread, in_trio_thread
from gnomon.runtime.trio_world import open_trio_world

T = TypeVar("T")

_warn = logging.getLogger(__name__).warning
_open = ExitStack()
_frozen: set[int] = set()
"""The process whose imports are frozen, and its parents."""
_clusters: dict[tuple[int, tuple[Address, ...]], tuple[Connections, TrioThread]] = {}


class Connections(NamedTuple):
    """The connections of a process to one cluster; each is made when it is first used."""

    brokers: KafkaBrokers
    bookies: PlannedBookies
    background: trio.Nursery
    """Runs what goes on between calls; it is cancelled when the connections are closed."""


def cluster_of(addresses: Sequence[Address]) -> tuple[Connections, TrioThread]:
    """The connections to a cluster, and the thread that they are used in.

    A process that was forked makes its own: neither the sockets nor the thread of its parent are of use to it.
    """
    key = os.getpid(), tuple(addresses)
    if key not in _clusters:
        _clusters[key] = _open.enter_context(in_trio_thread(_connected(addresses), "gnomon", _ended))
    return _clusters[key]


def freeze_imports() -> None:
    """Has the garbage collector leave out what a worker has imported by its first task.

    PySpark collects garbage after each task of a worker. A pass over all that is imported takes 35 ms, for which the
    next task waits.
    """
    if os.getpid() not in _frozen:
        _frozen.add(os.getpid())
        gc.freeze()


def each(thread: TrioThread, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The items of an asynchronous generator, each made by a call into the thread."""

    async def following() -> list[T]:
        async for item in items:
            return [item]
        return []

    try:
        while found := thread.call(following):
            yield found[0]
    finally:
        thread.call(items.aclose)


@asynccontextmanager
async def _connected(addresses: Sequence[Address]) -> AsyncIterator[Connections]:
    async with (
        open_trio_world() as world,
        KafkaBrokers(world, addresses, "gnomon-spark") as brokers,
        planned_bookies(world, _warn) as bookies,
        trio.open_nursery() as background,
    ):
        yield Connections(brokers, bookies, background)
        background.cancel_scope.cancel()


def _ended() -> Exception:
    return RuntimeError("the connections of this process were closed")
