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
    LIST_SUBSCRIPTIONS = "GET subscriptions"
    DESCRIBE_SUBSCRIPTION = "GET subscription/{subscription}"
    DELETE_SUBSCRIPTION = "DELETE subscription/{subscription}"
    SEEK_SUBSCRIPTION = "POST subscription/{subscription}/seek"
    SEEK_SUBSCRIPTION_TO_TIME = "POST subscription/{subscription}/resetcursor/{timestamp}"
    LIST_TABLES = "GET /kv/v1"
    SCAN_TABLE = "GET /kv/v1/{topic}"
    TRANSACT = "POST /kv/v1/{topic}"
    GET_KEY = "GET /kv/v1/{topic}/{key}"
    PUT_KEY = "PUT /kv/v1/{topic}/{key}"
    DELETE_KEY = "DELETE /kv/v1/{topic}/{key}"
    OPENAPI = "GET /admin/v2/openapi.json"


_CAST = (Rule(Operation.CAST, ResourceType.TOPIC, RefusalEffect.REQUEST),)
_DESCRIBE = (Rule(Operation.DESCRIBE, ResourceType.TOPIC, RefusalEffect.REQUEST),)

_WRITE = Rule(Operation.WRITE, ResourceType.TOPIC, RefusalEffect.REQUEST)
_READ = (Rule(Operation.READ, ResourceType.TOPIC, RefusalEffect.REQUEST),)


def _of_group(operation: Operation, refusal: RefusalEffect = RefusalEffect.REQUEST) -> Rule:
    """A rule for a subscription, which is a resource of type GROUP."""
    return Rule(operation, ResourceType.GROUP, refusal)


ADMIN_RULES: Final[Mapping[AdminRoute, tuple[Rule, ...]]] = {
    AdminRoute.LIST_SHADOWS: _DESCRIBE,
    AdminRoute.REPLACE_SHADOWS: _CAST,
    AdminRoute.ADD_SHADOWS: _CAST,
    AdminRoute.DELETE_SHADOWS: _CAST,
    AdminRoute.STATS: _DESCRIBE,
    AdminRoute.LIST_SUBSCRIPTIONS: (*_DESCRIBE, _of_group(Operation.DESCRIBE, RefusalEffect.HIDDEN)),
    AdminRoute.DESCRIBE_SUBSCRIPTION: (*_DESCRIBE, _of_group(Operation.DESCRIBE)),
    AdminRoute.DELETE_SUBSCRIPTION: (*_READ, _of_group(Operation.DELETE)),
    AdminRoute.SEEK_SUBSCRIPTION: (*_READ, _of_group(Operation.READ)),
    AdminRoute.SEEK_SUBSCRIPTION_TO_TIME: (*_READ, _of_group(Operation.READ)),
    AdminRoute.LIST_TABLES: (Rule(Operation.DESCRIBE, ResourceType.TOPIC, RefusalEffect.HIDDEN),),
    AdminRoute.SCAN_TABLE: _READ,
    AdminRoute.TRANSACT: (_WRITE, *_READ),
    AdminRoute.GET_KEY: _READ,
    AdminRoute.PUT_KEY: (_WRITE, *_READ),
    AdminRoute.DELETE_KEY: (_WRITE, *_READ),
    AdminRoute.OPENAPI: (),
}
"""A request that is refused has the status 403."""
