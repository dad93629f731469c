"""Which cluster a command works with, and running something in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TypeVar

import trio

from gnomon.bookie.ledgers import Ledgers, connect_ledgers
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.output import note
from gnomon.metadata.connect import MetadataAddress, parse_metadata_address
from gnomon.runtime.settings import Settings

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a command waits for a metadata service that does not answer."""
TOLD_SECONDS = 1.5
"""After which it is said that the metadata is waited for."""


def metadata_address(settings: Settings) -> MetadataAddress:
    """Where the cluster's metadata is.

    Raises:
        Failure: nothing says it, it cannot be read, or what an etcd needs is not installed.
    """
    text = settings.cluster.metadata
    if not text:
        raise Failure("which cluster? give --metadata HOST:PORT, or set cluster.metadata", Exit.USAGE)
    try:
        address = parse_metadata_address(text)
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    if address.etcd:
        check_etcd_client()
    return address


def check_etcd_client() -> None:
    """Raises Failure where what talks to an etcd is not installed."""
    try:
        import_module("gnomon.metadata.etcd")
    except ModuleNotFoundError as error:
        raise Failure(str(error)) from None


@asynccontextmanager
async def awaited(text: str, tell: Callable[[str], None], patience_seconds: float) -> AsyncIterator[Callable[[], None]]:
    """Says once that the metadata at `text` is waited for, unless what it yields is called before that: it answers."""
    answered = trio.CancelScope()

    async def wait() -> None:
        with answered:
            await trio.sleep(TOLD_SECONDS)
            tell(f"no answer yet from the metadata at {text}: it is waited for, about {patience_seconds:g} s")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        try:
            yield answered.cancel
        finally:
            answered.cancel()


def in_cluster(settings: Settings, work: Callable[[Ledgers], Awaitable[T]]) -> T:
    """What `work` gives on the ledgers of the cluster that the settings name."""
    address = metadata_address(settings)

    async def run() -> T:
        lac_seconds = settings.cluster.explicit_lac_seconds
        async with (
            awaited(settings.cluster.metadata, note, address.patience_seconds(ANSWER_SECONDS)) as answered,
            connect_ledgers(address, retry_seconds=ANSWER_SECONDS, explicit_lac_seconds=lac_seconds) as ledgers,
        ):
            answered()
            return await work(ledgers)

    return trio.run(run)
