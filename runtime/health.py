"""The health pages of a node: `/livez`, `/readyz` and `/metrics`, as routes of an ASGI application.

Starlette is imported when the routes are made; a daemon makes them after its first HTTP client has connected (see
`http.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gnomon.runtime.metrics import Metrics

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


class HealthCheck(NamedTuple):
    """One condition of readiness, or a warning, which does not make the node unready."""

    name: str
    problem: str | None
    """The reason why the condition does not hold; None while it holds."""
    warning: str | None = None
    """Something that an operator has to look at while the condition holds."""

    @property
    def line(self) -> str:
        """The check as `/readyz?verbose` lists it."""
        if self.problem is not None:
            return f"[-]{self.name} {self.problem}"
        return f"[+]{self.name} ok" if self.warning is None else f"[!]{self.name} {self.warning}"


def health_app(metrics: Metrics, checks: Callable[[], list[HealthCheck]]) -> Starlette:
    """The ASGI application of a node that serves nothing else over HTTP; for the arguments see `health_routes`."""
    from starlette.applications import Starlette

    return Starlette(routes=health_routes(metrics, checks))


def health_routes(metrics: Metrics, checks: Callable[[], list[HealthCheck]]) -> list[Route]:
    """The routes of the health pages.

    Args:
        metrics: the numbers of `/metrics`.
        checks: called for each `/readyz`; with `?verbose` the page lists every check.
    """
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        found = checks()
        failed = [check for check in found if check.problem is not None]
        if "verbose" in request.query_params:
            lines = [*(check.line for check in found), "not ready" if failed else "ready"]
        else:
            lines = [f"{check.name}: {check.problem}" for check in failed] or ["ok"]
            lines += [f"warning: {check.name}: {check.warning}" for check in found if check.warning is not None]
        return PlainTextResponse("\n".join(lines) + "\n", status_code=503 if failed else 200)

    async def metrics_page(request: Request) -> Response:
        content, content_type = metrics.render()
        return Response(content, headers={"content-type": content_type})

    return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics_page)]
