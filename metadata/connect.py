"""A cluster's metadata by its address: `HOST:PORT[,HOST:PORT…]` of gnomon's own service, or `etcd://HOST:PORT[,…]`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from gnomon.metadata.client import Metadata
from gnomon.metadata.remote import RETRY_SECONDS, RemoteMetadata
from gnomon.runtime.settings import PORT_MAX
from gnomon.runtime.world import World

ETCD = "etcd://"
ETCD_SECONDS = 6.0
"""How long an answer of an etcd is waited for."""


class MetadataAddress(NamedTuple):
    """Where a cluster's metadata is."""

    etcd: bool
    endpoints: tuple[tuple[str, int], ...]
    """Host and port of each process that serves the one store."""

    def patience_seconds(self, retry_seconds: float = RETRY_SECONDS) -> float:
        """About how long `connect_metadata` waits for an answer from there."""
        return ETCD_SECONDS if self.etcd else retry_seconds


def parse_metadata_address(text: str) -> MetadataAddress:
    """Reads an address as users write it.

    Raises:
        ValueError: it has another form.
    """
    etcd = text.startswith(ETCD)
    endpoints = []
    for each in text.removeprefix(ETCD).split(","):
        host, colon, port = each.strip().rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) <= PORT_MAX):
            raise ValueError(f"metadata address {text!r}: give HOST:PORT[,HOST:PORT…] or {ETCD}HOST:PORT[,HOST:PORT…]")
        endpoints.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return MetadataAddress(etcd, tuple(endpoints))


@asynccontextmanager
async def connect_metadata(
    world: World, address: MetadataAddress, *, retry_seconds: float = RETRY_SECONDS
) -> AsyncIterator[Metadata]:
    """The metadata at `address`, for as long as the block lasts; connects on first use.

    Args:
        retry_seconds: how long an answer of gnomon's own service is waited for.

    Raises:
        ModuleNotFoundError: it is in etcd, and httpx2 is not installed; the text says how to.
    """
    if address.etcd:
        from gnomon.metadata.etcd import EtcdMetadata

        endpoints = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.endpoints]
        async with EtcdMetadata(world, endpoints, call_seconds=ETCD_SECONDS) as etcd:
            yield etcd
        return
    async with trio.open_nursery() as nursery:
        remote = RemoteMetadata(world, address.endpoints, retry_seconds=retry_seconds)
        nursery.start_soon(remote.run)
        try:
            yield remote
        finally:
            nursery.cancel_scope.cancel()
