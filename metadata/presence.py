"""A key that exists as long as its process lives: put under a lease that is kept alive.

An exclusive key is put only if no other process has put it. A key that is not exclusive replaces a key of another
process, but only if the comparisons that the caller gave hold; otherwise nothing is put, and `run` raises NotEntitled.
If the key is found deleted, for example with the lease of a process that had replaced the key, it is put again.
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
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock

KEEP_ALIVES_PER_LEASE = 3


class KeyTaken(MetadataError):
    """Another live process has put the key; `value` is its value."""

    def __init__(self, key: str, value: bytes) -> None:
        super().__init__(f"the key {key!r} was put by another process that lives")
        self.value = value


class NotEntitled(MetadataError):
    """The comparisons for putting the key do not hold: the key belongs to another process, or must not exist."""


class Presence:
    """One key under a lease; `run` keeps both alive through all failures of the metadata service."""

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
            exclusive: the key is put only if no other process has put it.
            compare: conditions for every put of a key that is not exclusive.
        """
        assert not (exclusive and compare), (
            "an exclusive put takes no comparisons: its refusal does not name the one that failed"
        )
        self.key = key
        self._exclusive = exclusive
        self._compare = compare
        self.alive_until = float("-inf")
        """Monotonic second up to which the lease certainly lives; in the past while nothing is known."""
        self._metadata = metadata
        self._clock = clock
        self._value = value
        self._said: set[bytes] = set()
        self._ttl_seconds = ttl_seconds
        self.lease: LeaseId | None = None
        """The lease of the key, or of its next put."""
        self._changed = Signal()
        self._put = Signal()

    @property
    def value(self) -> bytes:
        """The value of the key, or of its next put."""
        return self._value

    def update(self, value: bytes) -> None:
        """Changes the value soon."""
        if value != self._value:
            self._value = value
            self._put.clear()
            self._changed.set()

    async def announced(self) -> None:
        """Waits until the key exists with its latest value."""
        await self._put.wait()

    async def run(self) -> NoReturn:
        """Keeps the key until cancelled; leaves its removal to `withdraw`, or to the end of its lease.

        Raises:
            KeyTaken: the key is exclusive, and another process has put it.
            NotEntitled: the comparisons do not hold; nothing was put.
        """
        while True:
            try:
                if self.lease is None:
                    await self._begin()
                await self.keep_alive(self.lease)
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

    async def keep_alive(self, lease: LeaseId | None) -> None:
        """Puts the key if its value has changed, waits until a keep-alive is due, and keeps the lease alive.

        Raises:
            LeaseNotFound: the lease has ended, or the key was deleted.
            KeyTaken, NotEntitled: as `run`.
            MetadataError: it is unknown whether the lease was kept alive.
        """
        assert lease is not None, "a presence is kept before it has a lease"
        if self._changed.is_set():
            self._changed.clear()
            value = self._value
            try:
                await self._say(Put(self.key, value, lease))
            except BaseException:
                self._changed.set()  # whether the key was put is unknown: it is put again
                raise
            if value == self._value:  # otherwise `update` has set another value meanwhile
                self._put.set()
        # From the time of the last keep-alive, not of its answer: after a late one the lease would end meanwhile.
        due = self.alive_until - self._ttl_seconds * (1 - 1 / KEEP_ALIVES_PER_LEASE)
        with trio.move_on_after(max(0.0, due - self._clock.monotonic())):
            await self._changed.wait()
        asked = self._clock.monotonic()
        await self._metadata.keep_alive(lease)
        self.alive_until = asked + self._ttl_seconds
        # No other process changes an exclusive key.
        if not self._exclusive and await self._metadata.get(self.key) is None:
            raise LeaseNotFound(
                f"the key {self.key!r} was deleted with the lease of another process: the lease alone shows nothing"
            )

    async def _say(self, put: Put) -> None:
        if not self._exclusive:
            if not (await self._metadata.txn(self._compare, (put,))).succeeded:
                raise NotEntitled(f"the key {self.key!r} may not be put by this process any more")
            return
        self._said.add(put.value)
        result = await self._metadata.txn((Compare.absent(self.key),), (put,), (Get(self.key),))
        if result.succeeded:
            return
        found = result.results[0]
        assert isinstance(found, KeyValue), f"the key {self.key!r} was neither there nor absent"
        if found.lease == put.lease:
            await self._metadata.txn((), (put,))  # the key is under this lease: no other process changes it
        elif found.value in self._said:
            raise MetadataUnavailable(f"the key {self.key!r} is there under a lease of this process that ends")
        else:
            raise KeyTaken(self.key, found.value)

    async def withdraw(self) -> None:
        """Deletes the key now, if the metadata service answers; call it after `run` has ended."""
        lease, self.lease = self.lease, None
        self.alive_until = float("-inf")
        if lease is not None:
            with suppress(MetadataError):
                await self._metadata.revoke(lease)
