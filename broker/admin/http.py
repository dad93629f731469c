"""The admin port: `/livez`, `/readyz` and `/metrics`, and a broker's admin API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gnomon.runtime.metrics import Metrics

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from gnomon.broker.broker import Broker


class Check(NamedTuple):
    """One condition of readiness; `problem` says why it does not hold, None when it does."""

    name: str
    problem: str | None


def admin_app(metrics: Metrics, checks: Callable[[], list[Check]], broker: Broker | None = None) -> Starlette:
    """The ASGI application.

    Args:
        metrics: what `/metrics` shows.
        checks: asked at each `/readyz`; with `?verbose` its answer is shown check by check.
        broker: whose admin API is served too.
    """
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        found = checks()
        failed = [check for check in found if check.problem is not None]
        if "verbose" in request.query_params:
            lines = [f"[{'-' if check.problem else '+'}]{check.name} {check.problem or 'ok'}" for check in found]
            lines.append("not ready" if failed else "ready")
        else:
            lines = [f"{check.name}: {check.problem}" for check in failed] or ["ok"]
        return PlainTextResponse("\n".join(lines) + "\n", status_code=503 if failed else 200)

    async def metrics_page(request: Request) -> Response:
        content, content_type = metrics.render()
        return Response(content, headers={"content-type": content_type})

    routes = [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics_page)]
    if broker is None:
        return Starlette(routes=routes)
    from gnomon.broker.admin.api import api_routes
    from gnomon.broker.admin.refusal import exception_handlers

    app = Starlette(routes=[*routes, *api_routes(broker)], exception_handlers=exception_handlers(broker.log))
    app.router.redirect_slashes = False  # a path is served or not, and nobody is sent to where a Host header says
    return app
