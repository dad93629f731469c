"""Serving HTTP in the production world: hypercorn on a socket that was bound early, so that its number is known."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from gnomon.runtime.sockets import address_advice
from gnomon.runtime.world import AddressTaken

BACKLOG = 100


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

    async def serve(self, app: Any, stop: Callable[[], Awaitable[None]]) -> None:
        """Serves an ASGI application until `stop()` returns."""
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = [f"fd://{self._socket.detach()}"]  # hypercorn owns and closes it from here on
        config.accesslog = None
        config.errorlog = None
        config.graceful_timeout = 1.0
        await serve(app, config, shutdown_trigger=stop)

    def close(self) -> None:
        """Gives the address up. Idempotent."""
        self._socket.close()
