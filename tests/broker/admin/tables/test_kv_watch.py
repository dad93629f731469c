"""Watches over HTTP: the present values, every change, and the end of a watch."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from native_calls import native
from raw_requests import open_answer, raw_scope

from gnomon.broker.admin.tables import table_routes, watch_response
from gnomon.client.errors import Compacted
from gnomon.client.tables.table_partition import TablePartition
from gnomon.runtime.rpc.client import _ClientConnection
from gnomon.wire.kafka.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

Run = Callable[..., None]
SETTINGS = "/kv/v1/settings"


def watch(query: str = "") -> Any:
    return raw_scope("GET", SETTINGS.encode(), f"watch{query}".encode())


def event(line: Any) -> tuple[str, bytes, bytes | None, int]:
    value = None if line["value"] is None else base64.b64decode(line["value"])
    return line["kind"], base64.b64decode(line["key"]), value, line["revision"]


async def put(admin: Any, key: str, value: bytes, query: str = "") -> None:
    assert (await admin.ask("PUT", f"{SETTINGS}/{key}{query}", content=value)).status_code == 204


def test_a_watch_shows_the_present_values_and_then_every_change(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        await put(admin, "colour", b"green")
        await put(admin, "other", b"x")
        async with open_answer(admin.app, watch("&prefix=col")) as answer:
            assert await answer.head() == 200
            assert event(await answer.line()) == ("current", b"colour", b"green", 0)
            await put(admin, "colour", b"blue", "?ttl_seconds=1")
            assert event(await answer.line()) == ("put", b"colour", b"blue", 2)
            assert event(await answer.line()) == ("expired", b"colour", None, 3)
            await put(admin, "colours", b"\xff")
            await admin.ask("DELETE", f"{SETTINGS}/colours")
            assert event(await answer.line()) == ("put", b"colours", b"\xff", 4)
            assert event(await answer.line()) == ("delete", b"colours", None, 5)

    beside_table(scenario)


def test_a_watch_begins_at_a_revision_or_with_the_next_change(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for value in (b"one", b"two", b"three"):
            await put(admin, "colour", value)
        for query in ("&revision=1", "&revision=0:1", "&revision=1&initial=false"):
            async with open_answer(admin.app, watch(query)) as answer:
                assert await answer.head() == 200
                assert [event(await answer.line())[2] for _ in range(2)] == [b"two", b"three"]
        async with open_answer(admin.app, watch("&initial=false")) as answer:
            assert await answer.head() == 200
            await put(admin, "colour", b"four")
            assert event(await answer.line()) == ("put", b"colour", b"four", 3)

    beside_table(scenario)


def test_a_watch_of_several_partitions_needs_the_revision_of_each(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for number in range(6):
            await put(admin, str(number), b"x")
        refused = await admin.ask("GET", f"{SETTINGS}?watch&revision=0")
        assert (refused.status_code, "has 2 partitions" in refused.json()["reason"]) == (400, True)
        async with open_answer(admin.app, watch("&revision=0:0,1:0")) as answer:
            await answer.head()
            assert {event(await answer.line())[1] for _ in range(6)} == {b"%d" % number for number in range(6)}

    beside_table(scenario, partitions=2)


def test_a_watch_below_the_start_of_the_log_is_410_with_the_first_revision(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(admin: Any) -> None:
        for value in (b"one", b"two", b"three"):
            await put(admin, "colour", value)
        async with native(admin.node) as client:
            await client.table("settings").snapshot()
        partition = DeleteRecordsPartition(partition_index=0, offset=2)
        topics = [DeleteRecordsTopic(name="settings", partitions=[partition])]
        await (await admin.node.connect()).ask(DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 2)
        gone = await admin.ask("GET", f"{SETTINGS}?watch&revision=1")
        assert (gone.status_code, gone.json()) == (
            410,
            {
                "reason": "the log of partition 0 begins at revision 2: read the present values, and watch from there",
                "first": 2,
                "partition": 0,
            },
        )
        async with open_answer(admin.app, watch("&revision=2")) as answer:
            await answer.head()
            assert event(await answer.line())[2] == b"three"

    beside_table(scenario)


def test_a_watch_that_retention_overtakes_ends_with_the_first_revision_on_a_line(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*args: Any) -> Any:
        raise Compacted(7)

    monkeypatch.setattr(TablePartition, "watch", overtaken)

    async def scenario(admin: Any) -> None:
        async with open_answer(admin.app, watch()) as answer:
            assert await answer.head() == 200
            line = await answer.line()
            assert (line["kind"], line["status"], line["first"]) == ("error", 410, 7)
            await answer.ended.wait()

    beside_table(scenario)


def test_a_quiet_watch_shows_that_it_lives(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        async with open_answer(admin.app, watch()) as answer:
            assert await answer.head() == 200
            began_at = admin.node.simulation.clock.monotonic()
            for _ in range(2):
                assert await answer.line() == {"kind": "idle"}
            waited = admin.node.simulation.clock.monotonic() - began_at
            assert waited == pytest.approx(2 * watch_response.IDLE_SECONDS, abs=0.1)

    beside_table(scenario)


def test_watches_follow_a_bounded_number_of_partitions_together(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_routes, "WATCHED_PARTITIONS_MAX", 3)

    async def scenario(admin: Any) -> None:
        for _ in range(3):
            async with open_answer(admin.app, watch()) as answer:
                assert await answer.head() == 200
                refused = await admin.ask("GET", f"{SETTINGS}?watch")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert (await admin.ask("GET", f"{SETTINGS}?watch&revision=9")).status_code == 400

    beside_table(scenario, partitions=2)


def test_a_watch_is_no_head_request(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        answer = await admin.ask("HEAD", f"{SETTINGS}?watch")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")

    beside_table(scenario)


def test_a_client_that_takes_nothing_holds_up_nobody_and_costs_a_bounded_memory(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(admin: Any) -> None:
        network = admin.node.simulation
        broken = list[str]()
        monkeypatch.setattr(_ClientConnection, "malformed", lambda connection, reason: broken.append(reason))
        async with open_answer(admin.app, watch("&initial=false")) as answer:
            assert await answer.head() == 200
            for _ in range(40):
                await put(admin, "colour", b"x" * 200_000)
            await network.sleep(1)
            (status,) = (await admin.ask("GET", "/kv/v1")).json()["tables"]
            assert status["lag"] == 0
            (table,) = admin.asked.tables._tables.values()
            (watching,) = table.watches._watches
            assert watching.position < 20, "the leader waits with the rest"
            values = [event(await answer.line())[3] for _ in range(40)]
            assert values == list(range(40)), "every change comes once it reads"
        assert broken == [], "the leader sends no more than there is room for"

    beside_table(scenario)


def test_the_watch_ends_with_its_client(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        async with open_answer(admin.app, watch()) as answer:
            assert await answer.head() == 200
            await admin.node.simulation.sleep(0.5)
            (hosted,) = admin.asked.tables._tables.values()
            assert len(hosted.watches) == 1
        await admin.node.simulation.sleep(0.5)
        assert len(hosted.watches) == 0

    beside_table(scenario)
