"""Runs the work of a command on a native client, and turns the errors of the native protocol into exit codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from gnomon.cli.exit import Exit, Failure
from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import (
    BrokerUnreachable,
    InvalidCall,
    NativeError,
    NoSuchSubscription,
    NoSuchTopic,
    NotAuthorized,
    OutcomeUnknown,
    Retriable,
    SubscriptionTaken,
)

T = TypeVar("T")

CODES: tuple[tuple[type[NativeError], Exit, str], ...] = (
    (BrokerUnreachable, Exit.UNREACHABLE, ": see --native-address"),
    (NoSuchTopic, Exit.CONFLICT, ": `gnomon topic list` shows all topics"),
    (NoSuchSubscription, Exit.CONFLICT, ": `gnomon subscription list` shows all subscriptions"),
    (SubscriptionTaken, Exit.CONFLICT, ""),
    (NotAuthorized, Exit.DENIED, ""),
    (InvalidCall, Exit.USAGE, ""),
    (Retriable, Exit.UNREACHABLE, ""),
    (OutcomeUnknown, Exit.UNREACHABLE, ": `gnomon position` shows the last record"),
    (NativeError, Exit.FAILED, ""),
)
"""The exit code of an error of the native protocol, and advice; the first matching line decides."""


def with_native_client(addresses: str, work: Callable[[NativeClient], Awaitable[T]]) -> T:
    """Runs `work` on a client and returns its result.

    Args:
        addresses: the native ports of some brokers; one that answers is enough.

    Raises:
        Failure: no broker answers, or a broker has refused.
    """

    async def run() -> T:
        async with connect(addresses) as client:
            return await work(client)

    try:
        return trio.run(run)
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    except NativeError as error:
        code, advice = next((code, advice) for kind, code, advice in CODES if isinstance(error, kind))
        raise Failure(f"{error}{advice}", code) from None
