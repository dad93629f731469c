"""A watch of etcd that survives the loss of its connections.

1. A watch holds a position, and the events of at most one message of etcd, or of one revision if etcd splits it over
   several messages. A slow reader stops the reading from the connection. Further events stay in etcd; if etcd compacts
   them meanwhile, the reader gets `HistoryCompacted`.
2. After any loss of a connection, the next connection begins at the first revision that was not received whole.
3. A silent connection is trusted only while the etcd member at its other end answers other requests.
"""

from __future__ import annotations

from collections import deque

import trio

from gnomon.metadata.client import MetadataUnavailable, Revision, WatchBatch
from gnomon.metadata.etcd.gateway import LOST, Gateway, RevisionWentBack, Stream
from gnomon.metadata.etcd.json import Json, Keyspace, WatchMessages


class Watcher:
    """The iterator of `Metadata.watch`; its owner closes it."""

    def __init__(
        self, gateway: Gateway, keyspace: Keyspace, prefix: str, from_revision: Revision, *, quiet_seconds: float
    ) -> None:
        self._gateway, self._keyspace, self._prefix = gateway, keyspace, prefix
        self._quiet_seconds = quiet_seconds
        self._messages = WatchMessages(keyspace, from_revision)
        self._batches: deque[WatchBatch] = deque()
        self._stream: Stream | None = None
        self._failures = 0
        self._connected_before = False

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> WatchBatch:
        """The next batch. A cancelled call loses nothing; the connection is opened again."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._batches:
            self._gateway.check_open()
            message = await self._next_message()
            if message is not None:
                self._batches.extend(self._messages.receive(message))
        return self._batches.popleft()

    async def close(self) -> None:
        """Closes the connection. Idempotent."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _next_message(self) -> Json | None:
        """A message of etcd; None after a lost or failed connection, when another one is to be tried."""
        url = self._gateway.favourite if self._stream is None else self._stream.url
        try:
            if self._stream is None:
                await self._connect(url)
            assert self._stream is not None
            message = await self._heard(self._stream)
            self._failures = 0
            return message
        except RevisionWentBack:
            raise
        except (*LOST, MetadataUnavailable):
            pass
        except BaseException:
            await self.close()
            raise
        await self.close()
        self._gateway.avoid(url)
        await self._gateway.pause(self._failures)
        self._failures += 1
        return None

    async def _connect(self, url: str) -> None:
        if self._connected_before:
            await self._gateway.probe(url, self._keyspace.question())
        self._messages.reconnected()
        body = self._keyspace.watch_body(self._prefix, self._messages.position)
        self._stream = await self._gateway.stream(url, "watch", body)
        self._connected_before = True

    async def _heard(self, stream: Stream) -> Json:
        """The next message of this connection; an error if its member is silent to other requests too (invariant 3)."""
        outcome: Json | Exception = trio.TooSlowError()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_probing, stream.url, nursery.cancel_scope)
            try:
                outcome = await stream.next()
            except (*LOST, MetadataUnavailable) as error:
                outcome = error
            nursery.cancel_scope.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _keep_probing(self, url: str, listening: trio.CancelScope) -> None:
        while True:
            await self._gateway.clock.sleep(self._quiet_seconds)
            try:
                await self._gateway.probe(url, self._keyspace.question())
            except (*LOST, MetadataUnavailable):
                listening.cancel()
                return
