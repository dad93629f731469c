"""The table of operations that the admin API asks for: each route is in it, and a refusal is 403 with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from gnomon.broker.authorization.admin_table import ADMIN_RULES, AdminRoute
from gnomon.broker.authorization.operation import ResourceType
from gnomon.broker.authorization.rule import RefusalEffect, Rule

DOCUMENT: dict[str, Any] = json.loads(files("gnomon.broker.admin").joinpath("openapi.json").read_text())
TOPICS = "/admin/v2/persistent/public/default"
Run = Callable[..., None]
RULES = [
    (route, rule) for route, rules in ADMIN_RULES.items() for rule in rules if rule.refusal is RefusalEffect.REQUEST
]


def described() -> set[str]:
    """The routes of the API's document, as the method and the part after the topic's path."""
    shadowed = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/"
    return {
        f"{method.upper()} {path.removeprefix(shadowed)}"
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
        if method in ("get", "put", "post", "delete")
    }


def test_the_table_names_every_route_that_is_described_and_no_other() -> None:
    unasked = {"GET /livez", "GET /readyz", "GET /metrics"}
    assert {route.value for route in ADMIN_RULES} - {AdminRoute.OPENAPI.value} == described() - unasked - {
        AdminRoute.OPENAPI.value
    }
    assert set(ADMIN_RULES) == set(AdminRoute)


@pytest.mark.parametrize(("route", "rule"), RULES, ids=[f"{route.name}-{rule.type.name}" for route, rule in RULES])
def test_a_route_is_refused_without_the_operation_that_the_table_names(
    administer: Run, route: AdminRoute, rule: Rule
) -> None:
    async def scenario(admin: Any) -> None:
        admin.deciding.refuse({(rule.operation, rule.type)})
        method, path = route.value.format(subscription="billing", timestamp=0, topic="orders", key="colour").split()
        body = {"json": ["a"]} if method in ("PUT", "POST") else {}
        response = await admin.ask(method, path if path.startswith("/") else f"{TOPICS}/orders/{path}", **body)
        assert response.status_code == 403
        resource = "topic 'orders'" if rule.type is ResourceType.TOPIC else "group 'billing'"
        assert f"is not authorized for {rule.operation.name} on {resource}" in response.json()["reason"]
        assert admin.deciding.sessions[-1].listener == "ADMIN"

    administer(scenario)


def test_a_refusal_says_nothing_about_the_existence_of_a_topic(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        rule = ADMIN_RULES[AdminRoute.STATS][0]
        admin.deciding.refuse({(rule.operation, rule.type)})
        there, absent = [await admin.ask("GET", f"{TOPICS}/{name}/stats") for name in ("orders", "none")]
        assert (there.status_code, absent.status_code) == (403, 403)

    administer(scenario)
