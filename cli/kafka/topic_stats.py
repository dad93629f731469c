"""Asks brokers for the statistics of a topic, over their native ports: replication to its shadows, and read holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from gnomon.cli.exit import Exit, Failure
from gnomon.client.addresses import parse_addresses
from gnomon.client.errors import ERRORS, NativeError, NoSuchTopic
from gnomon.client.protocol import SERVICE
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Unreachable, World

ASK_SECONDS = 5.0
HOLDS = ("partition", "holds", "offset")
"""The columns of read holds: their number in a partition, and the lowest offset."""
Ask: TypeAlias = Callable[[World, str, int, str], Awaitable[list[dict[str, Any]] | Exception]]
"""Asks the broker at a host and port about a topic."""


def replication_of(topic: str, addresses: str) -> list[dict[str, Any]]:
    """One row for each replicated shadow and partition of a topic; for a shadow, only its own rows.

    Args:
        addresses: the native ports of some brokers; one that answers is enough.

    Raises:
        Failure: no broker answers, or there is no such topic.
    """
    return _first_answer(topic, addresses, _replication_from)


def read_holds_of(topic: str, addresses: str) -> list[dict[str, Any]]:
    """One row for each partition of a topic that has read holds; arguments and errors as `replication_of`."""
    return _first_answer(topic, addresses, _read_holds_from)


def _first_answer(topic: str, addresses: str, ask: Ask) -> list[dict[str, Any]]:
    """The answer of the first broker that is reached."""
    try:
        found = trio.run(_asked, topic, parse_addresses(addresses), ask)
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    if isinstance(found, NoSuchTopic):
        raise Failure(f"{found}: `gnomon topic list` shows all topics", Exit.CONFLICT)
    if isinstance(found, Exception):
        raise Failure(f"no broker says it at {addresses} ({found}): see --native-address", Exit.UNREACHABLE)
    return found


async def _asked(topic: str, addresses: list[tuple[str, int]], ask: Ask) -> list[dict[str, Any]] | Exception:
    found: list[dict[str, Any]] | Exception = []
    async with open_trio_world() as world:
        for host, port in addresses:
            found = await ask(world, host, port, topic)
            if not isinstance(found, Unreachable):
                break
    return found


async def _read_holds_from(world: World, host: str, port: int, topic: str) -> list[dict[str, Any]] | Exception:
    answer = await _ask(world, host, port, "read_holds", topic)
    if isinstance(answer, Exception):
        return answer
    return [dict(zip(HOLDS, row, strict=True)) for row in answer]


async def _replication_from(world: World, host: str, port: int, topic: str) -> list[dict[str, Any]] | Exception:
    found = await _ask(world, host, port, "topic", topic)
    if isinstance(found, Exception):
        return found
    source = found[0] or topic  # its leaders replicate to the shadows
    looked_up = await _ask(world, host, port, "lookup", source)
    if isinstance(looked_up, Exception):
        return looked_up
    rows: list[dict[str, Any]] = []
    for leader_host, leader_port in dict.fromkeys(tuple(leader) for leader in looked_up[1] if leader is not None):
        answer = await _ask(world, leader_host, leader_port, "replication", source)
        if isinstance(answer, Exception):
            return answer
        rows += [
            {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}
            for row in answer
            if topic in (source, row["shadow"])
        ]
    return sorted(rows, key=lambda row: (row["shadow"], row["partition"]))


async def _ask(world: World, host: str, port: int, method: str, topic: str) -> Any:
    """Returns the answer, or the error instead of raising it, since a nursery would wrap it in a group."""
    async with trio.open_nursery() as nursery:
        client = RpcClient(world, host, port, SERVICE, ERRORS, call_seconds=ASK_SECONDS)
        nursery.start_soon(client.run)
        answer: Any
        try:
            answer = await client.call(method, topic)
        except (NativeError, RpcFailed, Unreachable) as error:
            answer = error
        nursery.cancel_scope.cancel()
    return answer
