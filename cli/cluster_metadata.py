"""Finds the cluster that a command works with, and runs a function on its ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TypeVar

import trio

from gnomon.bookie.ledgers.ledgers import Ledgers, connect_ledgers
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.output import note
from gnomon.metadata.connect import MetadataAddress, parse_metadata_address
from gnomon.runtime.settings.settings import Settings

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""Seconds that a command waits for a metadata service that does not answer."""
TOLD_SECONDS = 1.5
"""Seconds after which a line says that the command waits for the metadata."""


def metadata_address(settings: Settings) -> MetadataAddress:
    """The address of the cluster's metadata.

    Raises:
        Failure: no address is set, it is malformed, or the client for etcd is not installed.
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
    """Raises Failure if the client for etcd is not installed."""
    try:
        import_module("gnomon.metadata.etcd.etcd")
    except ModuleNotFoundError as error:
        raise Failure(str(error)) from None


@asynccontextmanager
async def awaited(text: str, tell: Callable[[str], None], patience_seconds: float) -> AsyncIterator[Callable[[], None]]:
    """Reports once that the metadata at `text` is waited for, unless the yielded function is called first."""
    answered = trio.CancelScope()

    async def wait() -> None:
        with answered:
            await trio.sleep(TOLD_SECONDS)
            tell(f"no answer yet from the metadata at {text}: waiting, about {patience_seconds:g} s")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        try:
            yield answered.cancel
        finally:
            answered.cancel()


def in_cluster(settings: Settings, work: Callable[[Ledgers], Awaitable[T]]) -> T:
    """Runs `work` on the ledgers of the cluster that the settings name, and returns its result."""
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
