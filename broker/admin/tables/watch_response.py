"""The answer to a watch: a line of JSON for each event, until the client goes.

1. A slow client holds up its own watch: besides the lines that are on their way, one event is kept, the rest of its
   batch, and for each partition what the leader sends ahead (`STREAM_WINDOW_BYTES`) or one page of present values.
2. While nothing changes, a line of the kind `idle` comes every IDLE_SECONDS: a client that is gone is noticed, and
   proxies keep the connection.
3. A watch that fails ends with a line of the kind `error`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gnomon.broker.admin.refusal import status_of
from gnomon.broker.admin.tables.table_answers import event_pieces, json_line
from gnomon.client.errors import Compacted, NativeError
from gnomon.client.tables.table_watch import TableEvent, TableWatch

IDLE_SECONDS: Final = 15.0
MEDIA_TYPE: Final = "application/jsonl"
IDLE_LINE: Final = json_line({"kind": "idle"})


class WatchResponse(Response):
    """Streams the events of one watch."""

    media_type = MEDIA_TYPE

    def __init__(self, begin: Callable[[trio.Nursery], TableWatch], ended: Callable[[], None]) -> None:
        """An answer that has not begun.

        Args:
            begin: begins the watch; the nursery runs its tasks.
            ended: is called once, at the end.
        """
        super().__init__(None, HTTPStatus.OK)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self._begin = begin
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends lines until the client is gone, or the watch fails."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                watch = self._begin(nursery)
                start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                await send(start)
                await _send_lines(watch, send)
                nursery.cancel_scope.cancel()
        finally:
            self._ended()


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _send_lines(watch: TableWatch, send: Callable[..., Awaitable[None]]) -> None:
    async def send_part(part: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": more})

    try:
        while True:
            event: TableEvent | None = None
            with trio.move_on_after(IDLE_SECONDS):
                event = await watch.__anext__()
            if event is None:
                await send_part(IDLE_LINE)
                continue
            for part in event_pieces(event.kind, event.key, event.value, event.revision, event.partition):
                await send_part(part)
    except StopAsyncIteration:
        await send_part(b"", more=False)
    except NativeError as error:
        await send_part(_error_line(error), more=False)


def _error_line(error: NativeError) -> bytes:
    row = {"kind": "error", "status": status_of(error).value, "reason": str(error)}
    if isinstance(error, Compacted):
        row["first"] = error.first
    return json_line(row)
