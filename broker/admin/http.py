"""The ASGI application of a broker's admin port: the health pages and the admin API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnomon.broker.admin.administered import Administered
from gnomon.runtime.health import HealthCheck, health_routes
from gnomon.runtime.metrics import Metrics

if TYPE_CHECKING:
    from starlette.applications import Starlette


def admin_app(metrics: Metrics, checks: Callable[[], list[HealthCheck]], administered: Administered) -> Starlette:
    """The application; Starlette and the admin API are imported when it is made.

    Args:
        metrics, checks: see `health_routes`.
        administered: the parts of the broker that the admin API administers.
    """
    from starlette.applications import Starlette

    from gnomon.broker.admin.api import api_routes
    from gnomon.broker.admin.refusal import exception_handlers

    routes = [*health_routes(metrics, checks), *api_routes(administered)]
    app = Starlette(routes=routes, exception_handlers=exception_handlers(administered.log))
    app.router.redirect_slashes = False  # a redirect would trust the Host header of the request
    return app
