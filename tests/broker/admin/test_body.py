"""Invalid bodies: each is refused with a reason, at little cost."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from gnomon.broker.admin.body import BODY_BYTES_MAX, BODY_SECONDS_MAX, NAMES_MAX
from gnomon.broker.admin.http import admin_app

Run = Callable[[Callable[[Any], Awaitable[None]]], None]
JSON = {"content-type": "application/json"}
PATH = "/admin/v2/persistent/public/default/orders/shadowTopics"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe[\x00]\x00",
        b"\x1f\x8b\x08garbage",
        b"null",
        b'"copy"',
        b'{"shadowTopics": ["copy"]}',
        b'["copy", 1]',
        b"[null]",
        b'[["copy"]]',
        b"[NaN]",
        b"[" + b"1" * 5000 + b"]",
        b"[" * 100_000,
        b'["\\ud800"]',
        b'[""]',
        b'["a b"]',
        b'["a/b"]',
        b'["persistent://copy"]',
        b'["persistent://public/default/"]',
        b'["non-persistent://public/default/copy"]',
        b'["public/default/a/b/c"]',
        b'[".."]',
        json.dumps(["x" * 100_000]).encode(),
        json.dumps([f"t{number}" for number in range(NAMES_MAX + 1)]).encode(),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_body_other_than_an_array_of_names_is_400_and_changes_nothing(administer: Run, body: bytes) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a"])
        for method in ("PUT", "POST", "DELETE"):
            status, reason = await admin.change(method, content=body, headers=JSON)
            assert status == 400, reason
            assert 0 < len(reason) < 400
        assert await admin.shadows() == ["a"]

    administer(scenario)


def test_put_and_post_need_a_body(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        await admin.change("PUT", names=["a"])
        for method in ("PUT", "POST"):
            assert (await admin.change(method, headers=JSON))[0] == 400
        assert await admin.shadows() == ["a"]

    administer(scenario)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_another_content_type_is_415(administer: Run, content_type: str) -> None:
    async def scenario(admin: Any) -> None:
        headers = {"content-type": content_type} if content_type else {}
        for method in ("PUT", "POST", "DELETE"):
            status, reason = await admin.change(method, content=b'["a"]', headers=headers)
            assert (status, reason) == (415, f"the content type is {content_type!r}: use application/json")
        assert await admin.shadows() == []

    administer(scenario)


def test_the_content_type_may_name_a_charset(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        headers = {"content-type": "Application/JSON; charset=UTF-8"}
        assert (await admin.change("PUT", content=b'["a"]', headers=headers))[0] == 204

    administer(scenario)


def test_a_body_that_is_too_large_is_413(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        for method in ("PUT", "POST", "DELETE"):
            status, reason = await admin.change(method, content=b" " * (BODY_BYTES_MAX + 1), headers=JSON)
            assert (status, reason) == (413, f"the body is larger than {BODY_BYTES_MAX} bytes")
        largest = b'["a"]'.ljust(BODY_BYTES_MAX)
        assert (await admin.change("PUT", content=largest, headers=JSON))[0] == 204

    administer(scenario)


async def put(admin: Any, receive: Callable[[], Awaitable[Any]]) -> int:
    """Puts the body that `receive` returns, without HTTP in between; returns the status."""
    statuses: list[int] = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "PUT", "path": PATH, "query_string": b"", "headers": headers}
    await admin_app(admin.asked.metrics, list, admin.administered)(scope, receive, send)
    return statuses[0]


def test_an_endless_body_is_read_up_to_the_limit_only(administer: Run) -> None:
    read = 0

    async def endless() -> Any:
        nonlocal read
        read += 1000
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    async def scenario(admin: Any) -> None:
        assert await put(admin, endless) == 413
        assert read <= BODY_BYTES_MAX + 1000

    administer(scenario)


def test_a_client_that_sends_no_body_gets_408_after_a_while_and_delays_no_other_request(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        clock = admin.node.simulation.clock
        began_at = clock.monotonic()

        async def wait() -> None:
            assert await put(admin, trio.sleep_forever) == 408
            assert clock.monotonic() - began_at == pytest.approx(BODY_SECONDS_MAX, abs=0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            assert await admin.change("PUT", names=["a"]) == (204, "")
            assert clock.monotonic() - began_at < 1

    administer(scenario)


def test_a_client_that_disconnects_within_its_body_changes_nothing(administer: Run) -> None:
    async def scenario(admin: Any) -> None:
        messages = [
            {"type": "http.request", "body": b'["a"]', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Any:
            return messages.pop(0)

        assert await put(admin, receive) == 400
        assert await admin.shadows() == []

    administer(scenario)
