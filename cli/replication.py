"""How the shadows of a topic are told of it, as the brokers that tell them say over their native ports."""

from __future__ import annotations

from typing import Any

import trio

from gnomon.broker.native.addresses import parse_addresses
from gnomon.broker.native.errors import ERRORS, SERVICE, NativeError, NoSuchTopic
from gnomon.cli.exit import Exit, Failure
from gnomon.runtime.rpc_client import RpcClient
from gnomon.runtime.rpc_errors import RpcFailed
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Unreachable, World

ASK_SECONDS = 5.0


def replication_of(topic: str, addresses: str) -> list[dict[str, Any]]:
    """One row for each shadow and partition of a topic that is told by somebody.

    Args:
        addresses: the native ports of some brokers; one that answers is enough.

    Raises:
        Failure: nobody answers, or there is no such topic.
    """
    try:
        found = trio.run(_replication_of, topic, parse_addresses(addresses))
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    if isinstance(found, NoSuchTopic):
        raise Failure(f"{found}: `gnomon topic list` shows all topics", Exit.CONFLICT)
    if isinstance(found, Exception):
        raise Failure(f"no broker says it at {addresses} ({found}): see --native-address", Exit.UNREACHABLE)
    return found


async def _replication_of(topic: str, addresses: list[tuple[str, int]]) -> list[dict[str, Any]] | Exception:
    found: list[dict[str, Any]] | Exception = []
    async with open_trio_world() as world:
        for host, port in addresses:
            found = await _from(world, host, port, topic)
            if not isinstance(found, Unreachable):
                break
    return found


async def _from(world: World, host: str, port: int, topic: str) -> list[dict[str, Any]] | Exception:
    looked_up = await _ask(world, host, port, "lookup", topic)
    if isinstance(looked_up, Exception):
        return looked_up
    rows = []
    for leader_host, leader_port in dict.fromkeys(tuple(leader) for leader in looked_up[1] if leader is not None):
        answer = await _ask(world, leader_host, leader_port, "replication", topic)
        if isinstance(answer, Exception):
            return answer
        rows += [
            {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}
            for row in answer
        ]
    return sorted(rows, key=lambda row: (row["shadow"], row["partition"]))


async def _ask(world: World, host: str, port: int, method: str, topic: str) -> Any:
    """The answer, or the error, which is not raised since a nursery would make a group of it."""
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
