"""Connects to a cluster's metadata by address: `HOST:PORT[,HOST:PORT…]` for gnomon's own service, or
`etcd://HOST:PORT[,…]`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from gnomon.metadata.client import Metadata
from gnomon.metadata.remote import RETRY_SECONDS, RemoteMetadata
from gnomon.runtime.background import background
from gnomon.runtime.settings.endpoint import PORT_MAX
from gnomon.runtime.world import World

ETCD = "etcd://"
ETCD_SECONDS = 6.0
"""Seconds to wait for an answer of an etcd."""


class MetadataAddress(NamedTuple):
    """The address of a cluster's metadata."""

    etcd: bool
    endpoints: tuple[tuple[str, int], ...]
    """Host and port of each process that serves the one store."""

    def patience_seconds(self, retry_seconds: float = RETRY_SECONDS) -> float:
        """Approximate seconds that `connect_metadata` waits for an answer from this address."""
        return ETCD_SECONDS if self.etcd else retry_seconds


def parse_metadata_address(text: str) -> MetadataAddress:
    """Parses an address as users write it.

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
    """The metadata at `address`, for the length of the block; connects on first use.

    Args:
        retry_seconds: time to wait for an answer of gnomon's own service.

    Raises:
        ModuleNotFoundError: it is in etcd, and httpx2 is not installed; the text says how to install it.
    """
    if address.etcd:
        from gnomon.metadata.etcd.etcd import EtcdMetadata

        endpoints = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.endpoints]
        async with EtcdMetadata(world, endpoints, call_seconds=ETCD_SECONDS) as etcd:
            yield etcd
        return
    async with background() as nursery:
        remote = RemoteMetadata(world, address.endpoints, retry_seconds=retry_seconds)
        nursery.start_soon(remote.run)
        yield remote
