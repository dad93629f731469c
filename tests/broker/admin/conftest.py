"""The admin API of a broker in a simulation; every answer is checked against the document of the API."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from schemathesis.schemas import APIOperation

sys.path.insert(0, str(Path(__file__).parents[1] / "authorization"))  # for `deciding`: test folders are no packages

from deciding import Refusing

from gnomon.broker.admin.http import admin_app
from gnomon.broker.node import ServingBroker
from gnomon.broker.standalone import Serving
from gnomon.runtime.health import HealthCheck
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

DOCUMENT: dict[str, Any] = json.loads(files("gnomon.broker.admin").joinpath("openapi.json").read_text())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
TOPICS = "/admin/v2/persistent/public/default"


class AdminClient:
    """A client of one broker's admin API; an answer that differs from the document fails the test."""

    def __init__(
        self, asked: Serving | ServingBroker, node: EmbeddedBroker | None = None, deciding: Refusing | None = None
    ) -> None:
        self.deciding = deciding
        self.node = node
        self.problems: list[HealthCheck] = []
        self.asked = asked.broker
        self.administered = asked.administered
        self.app = admin_app(asked.metrics, lambda: self.problems, asked.administered)
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://admin")

    async def ask(self, method: str, path: str, **fields: Any) -> httpx2.Response:
        """Sends one request and checks its answer against the document."""
        response = await self._client.request(method, path, **fields)
        operation = _operation(method, response.request.url.raw_path.partition(b"?")[0].decode())
        if operation is not None:
            assert str(response.status_code) in operation.definition.raw["responses"], "the status is described"
            operation.validate_response(response)
        return response

    async def shadows(self, topic: str = "orders") -> list[str]:
        """The names of a topic's shadows, without their common prefix."""
        response = await self.ask("GET", f"{TOPICS}/{topic}/shadowTopics")
        assert response.status_code == 200, response.text
        return [name.removeprefix("persistent://").removeprefix("public/default/") for name in response.json()]

    async def change(self, method: str, topic: str = "orders", names: Any = None, **fields: Any) -> tuple[int, str]:
        """Changes the shadows of a topic; returns the status and the reason, which is empty on success."""
        if names is not None:
            fields["json"] = names
        response = await self.ask(method, f"{TOPICS}/{topic}/shadowTopics", **fields)
        return response.status_code, response.json()["reason"] if response.content else ""


def _operation(method: str, path: str) -> APIOperation[Any, Any] | None:
    """The document's entry for a request, None if it has none."""
    for template, item in DOCUMENT["paths"].items():
        parts, found = template.split("/"), path.split("/")
        if len(parts) == len(found) and all(
            part.startswith("{") or part == there for part, there in zip(parts, found, strict=True)
        ):
            return SCHEMA[template][method] if method.lower() in item else None
    return None


Scenario = Callable[[AdminClient], Awaitable[None]]


@pytest.fixture
def admin_of() -> Callable[[ServingBroker], AdminClient]:
    """Makes a client of any broker's admin API."""
    return AdminClient


@pytest.fixture
def administer() -> Callable[..., None]:
    """Runs a scenario beside a broker that has the topic `orders`, of two partitions; `kafka` are its settings."""

    def run(scenario: Scenario, kafka: Mapping[str, str] | None = None) -> None:
        async def with_topic(broker: EmbeddedBroker) -> None:
            deciding = broker.authorizer = Refusing()
            await broker.restart()
            await (await broker.connect()).create_topic("orders", 2)
            await scenario(AdminClient(broker.serving, broker, deciding))

        simulate_broker(with_topic, kafka=kafka)

    return run
