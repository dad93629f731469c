"""The metadata store in etcd (3.4 or newer), over its HTTP/JSON gateway.

This module uses real sockets, so it does not run in simulations. Neither authentication nor TLS is supported: use an
etcd that only the cluster's machines can reach. gnomon does not compact etcd's history: set etcd's --auto-compaction
options.

1. All keys are below one prefix, so an etcd may serve other clusters and programs as well.
2. A transaction whose answer is lost is not repeated: its outcome is unknown. Every other request without an answer is
   repeated until `call_seconds` have passed.
3. Each node has an `EtcdMetadata` of its own, which caches nothing of the store, so any number of nodes may use one
   etcd.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

from gnomon.metadata.client import (
    Compare,
    InvalidRequest,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    MetadataUnavailable,
    Operation,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.etcd.gateway import Gateway
from gnomon.metadata.etcd.json import Json, Keyspace, RevisionCompacted, revision_of
from gnomon.metadata.etcd.watch import Watcher
from gnomon.metadata.request import Txn, refusal
from gnomon.runtime.world import World

_RANGE_TRIES = 3


class EtcdMetadata:
    """A `Metadata` in the keys of an etcd below one prefix; an async context manager that closes it."""

    def __init__(
        self,
        world: World,
        endpoints: Sequence[str],
        *,
        prefix: str = "gnomon/default/",
        call_seconds: float = 6.0,
        watch_quiet_seconds: float = 5.0,
        range_page_keys: int = 1000,
    ) -> None:
        """Connects on first use.

        Args:
            endpoints: client addresses of the members of one etcd cluster, each `host:port` or `http://host:port`.
            prefix: ends with a slash; no cluster's prefix may be the beginning of another's in the same etcd.
            call_seconds: time after which a call ends with MetadataUnavailable.
            watch_quiet_seconds: silence after which a watch checks whether its member still serves.
            range_page_keys: number of keys requested at once.

        Raises:
            InvalidRequest: no endpoints, one that is not a plain HTTP address, or a prefix without a slash at its end.
        """
        self._keyspace = Keyspace(prefix)
        self._gateway = Gateway(world, endpoints, call_seconds=call_seconds)
        self._quiet_seconds = watch_quiet_seconds
        self._page_keys = range_page_keys

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; later requests end with MetadataUnavailable. Idempotent."""
        await self._gateway.close()

    async def get(self, key: str) -> KeyValue | None:
        """See `Metadata.get`."""
        answer = await self._gateway.store_call("kv/range", {"key": self._keyspace.key(key)})
        items = self._keyspace.items(answer)
        return items[0] if items else None

    async def range(self, prefix: str) -> RangeResult:
        """See `Metadata.range`; read page by page, all pages of one revision."""
        for _ in range(_RANGE_TRIES):
            try:
                return await self._pages(prefix)
            except RevisionCompacted:
                pass  # compacted between two pages
        raise MetadataUnavailable(f"the keys below {prefix!r} are compacted faster than they are read: compact less")

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        """See `Metadata.txn`; after a cancellation the outcome is unknown.

        Raises:
            InvalidRequest: also for more comparisons, or more operations in a branch, than etcd accepts (128 by
                default), and for more bytes than etcd accepts (1.5 MiB by default).
        """
        request = Txn(tuple(compare), tuple(then), tuple(otherwise))
        refused = refusal(request)
        if refused is not None:
            raise InvalidRequest(f"the transaction is refused: {refused}")
        answer = await self._gateway.store_call("kv/txn", self._keyspace.txn_body(request), once=True)
        return self._keyspace.txn_result(request, answer)

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """See `Metadata.watch`; it waits for an unreachable etcd without limit.

        The iterator raises MetadataUnavailable once this object is closed, if etcd ends the watch for a reason of its
        own, and if etcd comes back without its data.
        """
        return self._watch(prefix, from_revision)

    async def lease(self, ttl_seconds: float) -> LeaseId:
        """See `Metadata.lease`; etcd counts whole seconds, and restarts the time with a new leader."""
        if not (math.isfinite(ttl_seconds) and ttl_seconds > 0):
            raise InvalidRequest(f"a lease of {ttl_seconds} seconds is refused: ask for a positive, finite time")
        answer = await self._gateway.call("lease/grant", {"TTL": str(math.ceil(ttl_seconds))})
        return LeaseId(int(answer["ID"]))

    async def keep_alive(self, lease: LeaseId) -> None:
        """See `Metadata.keep_alive`."""
        answer = await self._gateway.call("lease/keepalive", {"ID": str(lease)})
        if int(answer.get("TTL", 0)) <= 0:
            raise LeaseNotFound(
                f"lease {lease} expired or was revoked, and its keys were deleted with it: ask for a new one"
            )

    async def revoke(self, lease: LeaseId) -> None:
        """See `Metadata.revoke`."""
        try:
            await self._gateway.call("lease/revoke", {"ID": str(lease)})
        except LeaseNotFound:
            pass

    async def compact(self, revision: Revision) -> None:
        """See `Metadata.compact`; compacts the history of the whole etcd, including other prefixes."""
        now = revision_of(await self._gateway.store_call("kv/range", self._keyspace.question()))
        if revision > now:
            raise InvalidRequest(f"revision {revision} has not happened yet, the store is at {now}: compact up to that")
        if revision > 1:
            try:
                # One revision less: etcd loses the deletions of the revision that it compacts at.
                await self._gateway.call("kv/compaction", {"revision": str(revision - 1)})
            except RevisionCompacted:
                pass

    async def _pages(self, prefix: str) -> RangeResult:
        items: list[KeyValue] = []
        limits: Json = {"limit": str(self._page_keys)}
        revision, after = None, None
        while True:
            answer = await self._gateway.store_call("kv/range", self._keyspace.below(prefix, after) | limits)
            items += self._keyspace.items(answer)
            if revision is None:
                revision = revision_of(answer)
                limits["revision"] = str(revision)
            if not answer.get("more"):
                return RangeResult(revision, tuple(items))
            after = items[-1].key

    @asynccontextmanager
    async def _watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        watcher = Watcher(self._gateway, self._keyspace, prefix, from_revision, quiet_seconds=self._quiet_seconds)
        try:
            yield watcher
        finally:
            await watcher.close()
