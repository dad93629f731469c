"""Which cluster a command works with, and running something in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
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
    if address.etcd and find_spec("httpx2") is None:
        raise Failure("metadata in etcd needs the package httpx2, which is not there: pip install 'gnomon[etcd]'")
    return address


def in_cluster(settings: Settings, work: Callable[[Ledgers], Awaitable[T]]) -> T:
    """What `work` gives on the ledgers of the cluster that the settings name."""
    address = metadata_address(settings)

    async def run() -> T:
        async with connect_ledgers(address, retry_seconds=ANSWER_SECONDS) as ledgers:
            return await work(ledgers)

    return trio.run(run)
