"""Serves HTTP with hypercorn, on a socket that is bound early and served from its first connection on.

Importing hypercorn and starlette takes 0.3 s and 20 MB, longer than the whole start of a broker. So the port is bound
at once, which makes its number known and lets clients queue; the import waits for the first client. If the process has
no free file descriptor, the import waits for one, too.
"""

from __future__ import annotations

import errno
import importlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from gnomon.runtime.loop.sockets import address_advice
from gnomon.runtime.world import AddressTaken

BACKLOG = 100
DESCRIPTOR_RETRY_SECONDS = 0.5


class HttpSocket:
    """A bound, listening address for HTTP."""

    def __init__(self, host: str, port: int) -> None:
        """Binds and listens.

        Raises:
            AddressTaken: the address is in use or not one of this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            text = f"cannot serve HTTP on {host}:{port}: {error.strerror}: {address_advice(error)}"
            raise AddressTaken(text) from error
        self._socket.setblocking(False)
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    async def serve(self, make_app: Callable[[], Any], stop: Callable[[], Awaitable[None]]) -> None:
        """Serves the ASGI application that `make_app` builds, from the first connection until `stop()` returns."""
        await trio.lowlevel.wait_readable(self._socket)
        while True:
            try:
                return await self._serve(make_app, stop)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                await trio.sleep(DESCRIPTOR_RETRY_SECONDS)

    async def _serve(self, make_app: Callable[[], Any], stop: Callable[[], Awaitable[None]]) -> None:
        await trio.to_thread.run_sync(_load)
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = [f"fd://{self._socket.detach()}"]  # hypercorn owns and closes it from here on
        config.accesslog = None
        config.errorlog = None
        config.graceful_timeout = 1.0
        await serve(make_app(), config, shutdown_trigger=stop)

    def close(self) -> None:
        """Closes the socket. Idempotent."""
        self._socket.close()


def _load() -> None:
    """Imports the server in another thread, so that the broker runs meanwhile."""
    importlib.import_module("hypercorn.trio")
    importlib.import_module("starlette.applications")
