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
UNTAKEN_SECONDS_MAX = 10.0
"""A client that takes nothing of its answer for this time is disconnected: hypercorn would wait for it for ever, even
while the node stops."""
INSTALL = "python -m pip install --upgrade hypercorn starlette"


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
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections have it, too
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNTAKEN_SECONDS_MAX * 1_000))
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            text = f"cannot serve HTTP on {host}:{port}: {error.strerror}: {address_advice(error)}"
            raise AddressTaken(text) from error
        self._socket.setblocking(False)
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    async def serve(
        self, make_app: Callable[[], Any], stop: Callable[[], Awaitable[None]], report: Callable[[str], None]
    ) -> None:
        """Serves the ASGI application that `make_app` builds, from the first connection until `stop()` returns.

        If the server is not installed, `report` gets a sentence, the port is closed, and the node runs without pages.
        """
        await trio.lowlevel.wait_readable(self._socket)
        try:
            app = await _load(make_app)
        except ImportError as error:
            self.close()
            report(f"no page is served, because the HTTP server is not installed ({error}): {INSTALL}")
            return
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = [f"fd://{self._socket.detach()}"]  # hypercorn owns and closes it from here on
        config.accesslog = None
        config.errorlog = None
        config.graceful_timeout = 1.0
        await serve(app, config, shutdown_trigger=stop)

    def close(self) -> None:
        """Closes the socket. Idempotent."""
        self._socket.close()


async def _load(make_app: Callable[[], Any]) -> Any:
    """Imports the server in another thread, so that the broker runs meanwhile, and makes the application."""
    while True:
        try:
            for name in ("hypercorn.config", "hypercorn.trio", "starlette.applications"):
                await trio.to_thread.run_sync(importlib.import_module, name)
            return make_app()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            await trio.sleep(DESCRIPTOR_RETRY_SECONDS)
