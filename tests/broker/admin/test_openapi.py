"""The document of the admin API matches a real broker: valid and invalid requests are generated from it.

Schemathesis makes the requests from the document and checks each answer: status, content type, headers and body are
documented, allowed requests are accepted, forbidden ones are refused, and no answer is a 5xx.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.routing import Route

from gnomon.broker.admin.body import BODY_BYTES_MAX, NAMES_MAX
from gnomon.broker.admin.http import admin_app
from gnomon.runtime.health import HealthCheck
from gnomon.testing import KafkaBroker
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

DOCUMENT = json.loads(files("gnomon.broker.admin").joinpath("openapi.json").read_text())
FIXED = """
[parameters]
"path.tenant" = "public"
"path.namespace" = "default"
"path.topic" = "orders"
"""
TABLES = """
[[operations]]
include-tag = "tables"
checks.positive_data_acceptance.enabled = false
"""
"""A watch and a scan have the same path and other parameters, which the document cannot say; and no value of a header
has the quotes that a condition needs."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        yield broker


@pytest.mark.parametrize("config", [FIXED, ""], ids=["of a topic that is there", "of any topic"])
def test_every_answer_matches_the_document(broker: KafkaBroker, tmp_path: Path, config: str) -> None:
    (tmp_path / "schemathesis.toml").write_text(config + TABLES)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{broker.admin_url}/admin/v2/openapi.json"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--continue-on-failure"),
        *("--generation-deterministic", "--suppress-health-check", "all"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Tested: 19\b", done.stdout)
    assert "admin_request_failed" not in broker.log()
    assert urllib.request.urlopen(f"{broker.admin_url}/readyz").status == 200


def test_the_document_describes_exactly_the_served_routes() -> None:
    served: set[tuple[str, str]] = set()

    async def scenario(broker: EmbeddedBroker) -> None:
        app = admin_app(broker.serving.metrics, list, broker.serving.administered)
        for route in app.routes:
            assert isinstance(route, Route)
            served.update((route.path, method.lower()) for method in (route.methods or ()) if method != "HEAD")

    simulate_broker(scenario)
    methods = {"get", "put", "post", "delete", "patch", "head", "options", "trace"}
    described = {(path, method) for path, item in DOCUMENT["paths"].items() for method in methods & set(item)}
    assert served == described


def test_health_answers_match_the_document(administer: Callable[..., None]) -> None:
    async def scenario(admin: Any) -> None:
        for path in ("/livez", "/metrics", "/readyz", "/readyz?verbose"):
            assert (await admin.ask("GET", path)).status_code == 200
        admin.problems.append(HealthCheck("subscriptions", None, "nobody reads 'billing'"))
        response = await admin.ask("GET", "/readyz")
        assert (response.status_code, response.text) == (
            200,
            "ok\nwarning: subscriptions: nobody reads 'billing'\n",
        )
        assert (await admin.ask("GET", "/readyz?verbose")).text == "[!]subscriptions nobody reads 'billing'\nready\n"
        admin.problems[:] = [HealthCheck("bookie", "its disk is full")]
        response = await admin.ask("GET", "/readyz")
        assert (response.status_code, response.text) == (503, "bookie: its disk is full\n")
        assert "[-]bookie its disk is full\nnot ready\n" in (await admin.ask("GET", "/readyz?verbose")).text

    administer(scenario)


def test_the_document_states_the_limits_of_a_body() -> None:
    components = DOCUMENT["components"]
    assert components["schemas"]["Names"]["maxItems"] == NAMES_MAX
    assert f"{BODY_BYTES_MAX >> 10} KiB" in components["requestBodies"]["Names"]["description"]
