"""A key that is there as long as its process is: put under a lease that is kept alive.

An exclusive one is put only where nobody else has the key. Another one is put as long as what it was told to compare
holds, and again where another process took the key with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import trio

from gnomon.metadata.client import (
    Compare,
    Get,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    Metadata,
    MetadataError,
    MetadataUnavailable,
    Put,
)
from gnomon.runtime.world import Clock

KEEP_ALIVES_PER_LEASE = 3


class KeyTaken(MetadataError):
    """Another process that lives has put the key; `value` is what it says."""

    def __init__(self, key: str, value: bytes) -> None:
        super().__init__(f"the key {key!r} was put by another process that lives")
        self.value = value


class NotEntitled(MetadataError):
    """What is compared when the key is put does not hold: it is another's to put, or nobody's."""


class Presence:
    """One key under a lease; `run` keeps both alive, whatever the metadata service goes through meanwhile."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        key: str,
        value: bytes,
        ttl_seconds: float,
        *,
        exclusive: bool = False,
        compare: Sequence[Compare] = (),
    ) -> None:
        """Nothing is put before `run`.

        Args:
            exclusive: it is put only where no other process has put it.
            compare: what has to hold whenever one that is not exclusive is put.
        """
        assert not (exclusive and compare), "of a put that is refused it is not told which comparison failed"
        self.key = key
        self._exclusive = exclusive
        self._compare = compare
        self.alive_until = float("-inf")
        """Monotonic second up to which the lease lives for certain; the past while nothing is known."""
        self._metadata = metadata
        self._clock = clock
        self._value = value
        self._said: set[bytes] = set()
        self._ttl_seconds = ttl_seconds
        self.lease: LeaseId | None = None
        """The key stands under it, or soon will."""
        self._changed = trio.Event()
        self._put = trio.Event()

    @property
    def value(self) -> bytes:
        """What the key says, or is about to."""
        return self._value

    def update(self, value: bytes) -> None:
        """Says something else from soon on."""
        if value != self._value:
            self._value = value
            self._put = trio.Event()
            self._changed.set()

    async def announced(self) -> None:
        """Waits until the key stands there as it was given last."""
        await self._put.wait()

    async def run(self) -> NoReturn:
        """Keeps the key there until cancelled; leaves it to `withdraw`, or to the end of its lease, to take it away.

        Raises:
            KeyTaken: it is to be exclusive, and another process has put it.
            NotEntitled: what is compared does not hold; nothing was put.
        """
        while True:
            try:
                if self.lease is None:
                    await self._begin()
                await self._keep(self.lease)
            except LeaseNotFound:
                self.lease = None
                self.alive_until = float("-inf")
            except (KeyTaken, NotEntitled):
                raise
            except MetadataError:
                await self._clock.sleep(self._ttl_seconds / KEEP_ALIVES_PER_LEASE / 4)

    async def _begin(self) -> None:
        asked = self._clock.monotonic()
        self.lease = await self._metadata.lease(self._ttl_seconds)
        self.alive_until = asked + self._ttl_seconds
        self._changed.set()

    async def _keep(self, lease: LeaseId | None) -> None:
        assert lease is not None, "a presence is kept before it has a lease"
        if self._changed.is_set():
            self._changed = trio.Event()
            value, put = self._value, self._put
            try:
                await self._say(Put(self.key, value, lease))
            except BaseException:
                self._changed.set()  # whether it stands there is unknown: it is put again
                raise
            put.set()
        with trio.move_on_after(self._ttl_seconds / KEEP_ALIVES_PER_LEASE):
            await self._changed.wait()
        asked = self._clock.monotonic()
        await self._metadata.keep_alive(lease)
        self.alive_until = asked + self._ttl_seconds
        if not self._exclusive and await self._metadata.get(self.key) is None:  # an exclusive one is nobody else's
            raise LeaseNotFound(f"the key {self.key!r} went with another process: without it the lease says nothing")

    async def _say(self, put: Put) -> None:
        if not self._exclusive:
            if not (await self._metadata.txn(self._compare, (put,))).succeeded:
                raise NotEntitled(f"the key {self.key!r} is not this process's to put any more")
            return
        self._said.add(put.value)
        result = await self._metadata.txn((Compare.absent(self.key),), (put,), (Get(self.key),))
        if result.succeeded:
            return
        found = result.results[0]
        assert isinstance(found, KeyValue), f"the key {self.key!r} was neither there nor absent"
        if found.lease == put.lease:
            await self._metadata.txn((), (put,))  # it stands there under this lease: nobody else changes it
        elif found.value in self._said:
            raise MetadataUnavailable(f"the key {self.key!r} is there under a lease of this process that ends")
        else:
            raise KeyTaken(self.key, found.value)

    async def withdraw(self) -> None:
        """Takes the key away now, where the metadata service answers; call it when `run` has ended."""
        lease, self.lease = self.lease, None
        self.alive_until = float("-inf")
        if lease is not None:
            with suppress(MetadataError):
                await self._metadata.revoke(lease)
