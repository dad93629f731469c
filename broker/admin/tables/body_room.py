"""Counts the bytes of the bodies that a broker's REST API has in memory: of requests, or of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from gnomon.broker.admin.refusal import RETRY_SOON, AdminRefused

BODIES_BYTES_MAX: Final = 64 << 20
"""All bodies of a room together."""


class BodyRoom:
    """The room for some bodies."""

    def __init__(self, bodies: str) -> None:
        """No body is in memory; `bodies` names those that are counted here, in a refusal."""
        self._bodies = bodies
        self._bytes = 0

    @contextmanager
    def hold(self) -> Iterator[Callable[[int], None]]:
        """Counts one body until the block ends; the value is called with the bytes of each part, and may refuse it."""
        held = 0

        def take(count: int) -> None:
            nonlocal held
            held += count
            self._bytes += count
            if self._bytes > BODIES_BYTES_MAX:
                raise AdminRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{self._bodies} are {self._bytes} bytes, {BODIES_BYTES_MAX} are allowed: try again",
                    {**RETRY_SOON, "Connection": "close"},
                )

        try:
            yield take
        finally:
            self._bytes -= held
