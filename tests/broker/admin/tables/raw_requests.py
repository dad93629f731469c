"""Requests to an ASGI application with paths and queries of any bytes, and answers that do not end."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote

import trio


class RawAnswer(NamedTuple):
    """The answer to a raw request."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def raw_scope(method: str, path: bytes, query: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> Any:
    return {
        "type": "http",
        "method": method,
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "headers": list(headers),
    }


async def raw_ask(app: Any, scope: Any, body: bytes = b"") -> RawAnswer:
    """Sends one request and waits for the whole answer."""
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return parts.pop(0) if parts else await trio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return RawAnswer(sent[0]["status"], dict(sent[0]["headers"]), b"".join(each.get("body", b"") for each in sent[1:]))


class OpenAnswer:
    """An answer that is read while it is sent; `line` waits for the next line."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.sent, self._taken = trio.open_memory_channel[Any](0)
        self.gone = trio.Event()
        self.taking = True
        """Whether the client takes parts of the answer."""
        self.waiting_bytes = 0
        """The bytes of a part that the client does not take."""
        self.ended = trio.Event()
        self._buffer = b""

    async def receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        with suppress(trio.BrokenResourceError):  # a server drops what it cannot send any more
            await self.sent.send(message)

    def go(self) -> None:
        """The client goes."""
        self.gone.set()
        self._taken.close()

    async def head(self) -> int:
        """Waits for the status."""
        message = await self._taken.receive()
        return int(message["status"])

    async def line(self) -> Any:
        """The next line, parsed; None at the end."""
        while b"\n" not in self._buffer:
            message = await self._taken.receive()
            self._buffer += message["body"]
            if not message["more_body"] and not self._buffer:
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


@asynccontextmanager
async def open_answer(app: Any, scope: Any, body: bytes = b"") -> AsyncIterator[OpenAnswer]:
    """An answer whose client goes at the end of the block; the application must have ended soon after."""
    answer = OpenAnswer(body)

    async def serve() -> None:
        await app(scope, answer.receive, answer.send)
        answer.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            yield answer
        finally:
            answer.go()
            with trio.fail_after(math.inf):
                await answer.ended.wait()
            nursery.cancel_scope.cancel()
