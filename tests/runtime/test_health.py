from __future__ import annotations

import httpx2
import trio

from gnomon.runtime.health import HealthCheck, health_app
from gnomon.runtime.metrics import Metrics


def page(path: str, *checks: HealthCheck) -> tuple[int, str]:
    async def get() -> httpx2.Response:
        transport = httpx2.ASGITransport(health_app(Metrics(kafka=False), lambda: list(checks)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.get(path)

    response = trio.run(get)
    return response.status_code, response.text


def test_a_node_is_ready_when_every_check_holds() -> None:
    checks = (HealthCheck("bookie", None), HealthCheck("registration", None))
    assert page("/readyz", *checks) == (200, "ok\n")
    assert page("/readyz?verbose", *checks) == (200, "[+]bookie ok\n[+]registration ok\nready\n")


def test_readyz_names_the_check_that_fails_and_livez_stays_ok() -> None:
    checks = (HealthCheck("bookie", "its disk is full"), HealthCheck("registration", None))
    assert page("/readyz", *checks) == (503, "bookie: its disk is full\n")
    assert page("/readyz?verbose", *checks) == (503, "[-]bookie its disk is full\n[+]registration ok\nnot ready\n")
    assert page("/livez", *checks) == (200, "ok\n")


def test_metrics_shows_the_numbers_of_the_node_and_there_are_no_other_pages() -> None:
    status, text = page("/metrics")
    assert (status, "gnomon_durability_synced 1.0" in text) == (200, True)
    assert page("/admin/v2/openapi.json")[0] == 404
