"""A route of the REST API of tables, which is found by the path as it was sent.

Starlette matches the decoded path, in which a slash of a key looks like the one between topic and key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from gnomon.broker.admin.tables.table_path import parts_below

PARTS_MAX: Final = 2
"""The route with a topic and a key also takes paths with more parts, and refuses them."""


class KvRoute(Route):
    """A route for paths with `parts` parts below the root."""

    def __init__(
        self, path: str, parts: int, endpoint: Callable[[Request], Awaitable[Response]], methods: Sequence[str]
    ) -> None:
        """`path` is that of the API's document."""
        super().__init__(path, endpoint, methods=list(methods))
        self._parts = parts

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See `Route.matches`."""
        found = parts_below(raw_path(scope)) if scope["type"] == "http" else None
        if found is None or min(found, PARTS_MAX) != self._parts:
            return Match.NONE, {}
        is_served = self.methods is None or scope["method"] in self.methods
        return Match.FULL if is_served else Match.PARTIAL, {"endpoint": self.endpoint, "path_params": {}}


def raw_path(scope: Scope) -> bytes:
    """The path of a request, as it was sent; servers may leave it out."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if raw is None else raw
