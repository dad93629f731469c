"""The operations that each route of a broker's admin API asks for. Pure.

Health, metrics and the description of the API ask for nothing: probes and scrapers have no principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.authorization.rule import RefusalEffect, Rule


class AdminRoute(Enum):
    """The routes, each with its path below a topic's, or its whole path."""

    LIST_SHADOWS = "GET shadowTopics"
    REPLACE_SHADOWS = "PUT shadowTopics"
    ADD_SHADOWS = "POST shadowTopics"
    DELETE_SHADOWS = "DELETE shadowTopics"
    STATS = "GET stats"
    OPENAPI = "GET /admin/v2/openapi.json"


_CAST = (Rule(Operation.CAST, ResourceType.TOPIC, RefusalEffect.REQUEST),)
_DESCRIBE = (Rule(Operation.DESCRIBE, ResourceType.TOPIC, RefusalEffect.REQUEST),)

ADMIN_RULES: Final[Mapping[AdminRoute, tuple[Rule, ...]]] = {
    AdminRoute.LIST_SHADOWS: _DESCRIBE,
    AdminRoute.REPLACE_SHADOWS: _CAST,
    AdminRoute.ADD_SHADOWS: _CAST,
    AdminRoute.DELETE_SHADOWS: _CAST,
    AdminRoute.STATS: _DESCRIBE,
    AdminRoute.OPENAPI: (),
}
"""A request that is refused has the status 403."""
