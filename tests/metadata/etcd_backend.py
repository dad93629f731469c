"""An etcd that many scenarios share, on accelerated time."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from store_machine import ClockOnlyWorld, Scenario
from trio.testing import MockClock

from gnomon.metadata.client import LeaseId, Revision
from gnomon.testing.etcd_server import EtcdServer

ETCD_HASTE = 8.0
"""Seconds of a scenario with leases per second of the machine: etcd has no virtual time."""


class EtcdWorld(ClockOnlyWorld):
    """A `World` for a connection to etcd, which needs the clock, and random numbers for its pauses."""

    def random(self, name: str) -> random.Random:
        return random.Random(name)


class HastenedMetadata:
    """The metadata of an etcd with leases shorter than requested; from the first lease on, time is faster."""

    def __init__(self, inner: Any, clock: MockClock) -> None:
        self._inner = inner
        self._clock = clock
        self.leases: list[LeaseId] = []
        self.compacted = False

    async def lease(self, ttl_seconds: float) -> LeaseId:
        self._clock.rate = ETCD_HASTE
        self.leases.append(await self._inner.lease(ttl_seconds / ETCD_HASTE))
        return self.leases[-1]

    async def compact(self, revision: Revision) -> None:
        self.compacted = True
        await self._inner.compact(revision)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class EtcdBackend:
    """An etcd that many scenarios share, each below a prefix of its own, until one compacts its history."""

    def __init__(self, new_directory: Callable[[], Path]) -> None:
        self._new_directory = new_directory
        self._server: EtcdServer | None = None
        self._scenarios = 0

    def run_scenario(self, scenario: Scenario) -> None:
        """Runs a scenario on real or accelerated time."""
        from gnomon.metadata.etcd.etcd import EtcdMetadata  # needs httpx2

        if self._server is None:
            self._server = EtcdServer(self._new_directory())
            self._server.start()
            self._server.wait_ready()
        self._scenarios += 1
        endpoints, prefix = [self._server.endpoint], f"gnomon/scenario-{self._scenarios}/"
        clock = MockClock(rate=1.0)

        async def main() -> bool:
            async with EtcdMetadata(EtcdWorld(), endpoints, prefix=prefix, call_seconds=10 * ETCD_HASTE) as inner:
                metadata = HastenedMetadata(inner, clock)
                with trio.fail_after(600):
                    await scenario(metadata)
                for lease in metadata.leases:  # the end of a lease would add a revision to the next scenario
                    await metadata.revoke(lease)
                return metadata.compacted

        compacted = True
        try:
            compacted = trio.run(main, clock=clock)
        finally:
            if compacted:
                self.close()

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.kill()
