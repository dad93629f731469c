"""Which cluster a command works with, and running something in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TypeVar

import trio

from gnomon.bookie.ledgers import Ledgers, connect_ledgers
from gnomon.cli.exit import Exit, Failure
from gnomon.metadata.connect import MetadataAddress, parse_metadata_address
from gnomon.runtime.settings import Settings

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a command waits for a metadata service that does not answer."""


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


def in_cluster(settings: Settings, work: Callable[[Ledgers], Awaitable[T]]) -> T:
    """What `work` gives on the ledgers of the cluster that the settings name."""
    address = metadata_address(settings)

    async def run() -> T:
        lac_seconds = settings.cluster.explicit_lac_seconds
        async with connect_ledgers(address, retry_seconds=ANSWER_SECONDS, explicit_lac_seconds=lac_seconds) as ledgers:
            return await work(ledgers)

    return trio.run(run)
