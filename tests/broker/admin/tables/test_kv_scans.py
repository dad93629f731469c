"""Scans, transactions and the list of tables over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from gnomon.broker.admin.tables import table_list
from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.log.tables.operations import OPERATIONS_MAX

Run = Callable[..., None]
SETTINGS = "/kv/v1/settings"
JSON = {"content-type": "application/json"}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def keys(page: Any) -> list[bytes]:
    return [base64.b64decode(entry["key"]) for entry in page["entries"]]


async def transact(admin: Any, document: Any) -> Any:
    return await admin.ask("POST", SETTINGS, content=json.dumps(document).encode(), headers=JSON)


def test_a_scan_merges_the_partitions_and_its_pages_follow_each_other(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        wanted = sorted([b"a%02d" % number for number in range(20)] + [b"b/\xff", b"b+ %"])
        async with trio.open_nursery() as nursery:
            for key in [*wanted, b"c"]:
                path = f"{SETTINGS}/{''.join(f'%{byte:02x}' for byte in key)}"
                nursery.start_soon(lambda path: admin.ask("PUT", path, content=path.encode()), path)
        page = (await admin.ask("GET", SETTINGS)).json()
        assert (keys(page), page["after"], page["next"]) == ([*wanted, b"c"], None, None)
        assert sorted(page["revisions"]) == ["0", "1", "2"]
        assert {entry["partition"] for entry in page["entries"]} == {0, 1, 2}

        for prefix, expected in (
            ("", [*wanted, b"c"]),
            ("a", wanted[:20]),
            ("b%2F", [b"b/\xff"]),
            ("b%2B+", [b"b+ %"]),
        ):
            path, found = f"{SETTINGS}?prefix={prefix}&limit=3&keys_only=true", []
            while path is not None:
                page = (await admin.ask("GET", path)).json()
                assert 0 < len(page["entries"]) <= 3
                assert set(page["entries"][0]) == {"key", "partition"}
                found += keys(page)
                path = page["next"]
            assert found == expected
        assert keys((await admin.ask("GET", f"{SETTINGS}?after=b%2f%FF&stale=true")).json()) == [b"c"]
        assert keys((await admin.ask("GET", f"{SETTINGS}?prefix=x")).json()) == []

    beside_table(scenario, partitions=3)


def test_a_page_ends_after_some_bytes_and_every_key_is_in_one(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for number in range(10):
            await admin.ask("PUT", f"{SETTINGS}/{number}", content=bytes([number]) * 300_000)
        path, found = SETTINGS, []
        while path is not None:
            page = (await admin.ask("GET", path)).json()
            assert sum(len(entry["value"]) for entry in page["entries"]) < 2 << 20
            found += page["entries"]
            path = page["next"]
        assert [entry["value"] for entry in found] == [b64(bytes([number]) * 300_000) for number in range(10)]

    beside_table(scenario, partitions=2)


REFUSALS = [
    ("limit=0", "limit is a number from 1 to 10000, not 0"),
    ("limit=10001", "limit is a number from 1 to 10000, not 10001"),
    ("limit=ten", "limit is a number of 1 to 18 digits, not 'ten'"),
    ("limit=" + "9" * 5_000, "limit is a number of 1 to 18 digits, not '999"),
    ("prefix=%", "parameter 'prefix' has '%': two hexadecimal digits"),
    ("prefix=" + "a" * 501, "the prefix has 501 bytes: 500 are allowed"),
    ("after=" + "a" * 501, "the key 'after' has 501 bytes: 500 are allowed"),
    ("prefx=a", "parameter 'prefx' is unknown: use after, keys_only, limit, prefix, stale"),
    ("revision=1", "parameter 'revision' is unknown: use after"),
    ("watch&limit=1", "parameter 'limit' is unknown: use initial, prefix, revision, watch"),
    ("watch=no", "watch is true or false, not 'no'"),
    ("watch=false", "leave 'watch' out for a scan"),
    ("watch&revision=x", "revision is a number of 1 to 18 digits, not 'x'"),
    ("watch&revision=0:1,0:2", "revision has partition 0 twice"),
    ("watch&revision=0:1,", "a partition of 'revision' is a number of 1 to 18 digits, not ''"),
    ("watch&revision=0:1,1:5", "table 'settings' has 1 partitions: give the revision of each, as 0:17,1:4"),
    ("watch&revision=1", "revision 1 of partition 0 is in the future: the next one is 0"),
    ("watch&revision=0&initial=true", "a watch begins with the present values (initial=true) or at a revision"),
]


def test_a_scan_or_a_watch_with_other_parameters_is_refused(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for query, reason in REFUSALS:
            answer = await admin.ask("GET", f"{SETTINGS}?{query}")
            assert (answer.status_code, answer.json()["reason"][: len(reason)]) == (400, reason)

    beside_table(scenario)


def test_a_transaction_is_done_as_a_whole_and_answers_in_the_form_of_the_command_line(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        leader, terms = b64(b"leader"), b64(b"terms")
        document = {
            "compare": [["version", leader, "==", 0], ["value", leader, "==", None]],
            "then": [["put", leader, b64(b"one"), 10], ["incr", terms], ["get", terms], ["delete", b64(b"x")]],
            "otherwise": [["get", leader], ["get", b64(b"y")]],
        }
        answer = await transact(admin, document)
        assert answer.status_code == 200
        done = answer.json()
        assert {name: done[name] for name in ("succeeded", "revision", "partition")} == {
            "succeeded": True,
            "revision": 1,
            "partition": 0,
        }
        none = dict.fromkeys(("value", "revision", "create_revision", "version", "expires_ms"))
        put, added, read, deleted = done["answers"]
        assert put == {"operation": "put", "key": leader, **none, "revision": 0}
        assert added == {"operation": "incr", "key": terms, **none, "value": b64(b"1"), "revision": 1}
        numbers = {"revision": 1, "create_revision": 1, "version": 1}
        assert read == {"operation": "get", "key": terms, **none, "value": b64(b"1"), **numbers}
        assert deleted == {"operation": "delete", "key": b64(b"x"), **none, "revision": -1}

        refused = (await transact(admin, document)).json()
        assert (refused["succeeded"], refused["revision"]) == (False, -1)
        present, absent = refused["answers"]
        assert (present["value"], present["version"], present["expires_ms"] is None) == (b64(b"one"), 1, False)
        assert absent == {
            "operation": "get",
            "key": b64(b"y"),
            **none,
            "revision": -1,
            "create_revision": -1,
            "version": 0,
        }

    beside_table(scenario)


def test_all_keys_of_a_transaction_lie_in_one_partition(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        answer = await transact(admin, {"then": [["put", b64(b"%d" % number), ""] for number in range(9)]})
        reason = "the keys lie in partitions [0, 1] of table 'settings', not in one"
        assert (answer.status_code, answer.json()["reason"]) == (400, reason)

    beside_table(scenario, partitions=2)


def test_a_transaction_needs_a_json_object_of_a_bounded_size(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for content_type in ("text/plain", "x" * 5_000):
            answer = await admin.ask("POST", SETTINGS, content=b"{}", headers={"content-type": content_type})
            assert answer.status_code == 415
            assert len(answer.text) < 300
        large = await admin.ask("POST", SETTINGS, content=b" " * ((3 << 19) + 1), headers=JSON)
        assert (large.status_code, large.json()["reason"]) == (
            413,
            "the body is larger than 1572864 bytes: write large values with PUT",
        )
        assert (await admin.ask("POST", f"{SETTINGS}?stale=true", content=b"{}", headers=JSON)).status_code == 400
        assert (await admin.ask("POST", "/kv/v1/orders", content=b"{}", headers=JSON)).status_code == 409
        many = {"then": [["put", b64(b"%d" % number), b64(b"x" * 900)] for number in range(OPERATIONS_MAX)]}
        assert (await transact(admin, many)).status_code == 200
        sum_of_others = await transact(admin, {"then": [["incr", b64(b"0")]]})
        assert sum_of_others.status_code == 400, "the value is no number"

    beside_table(scenario)


def test_tables_are_listed_with_the_numbers_of_their_leaders_in_pages(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(admin: Any) -> None:
        kafka = await admin.node.connect()
        await kafka.create_topic("eu/sales/prices", 3, configs={"gnomon.view": "kv"})
        await admin.ask("PUT", f"{SETTINGS}/colour", content=b"green")
        await admin.ask("PUT", f"{SETTINGS}/colour", content=b"blue")
        listed = (await admin.ask("GET", "/kv/v1")).json()
        assert listed["after"] is None
        prices, settings = listed["tables"]
        assert (prices["table"], prices["engine"], len(prices["partitions"])) == ("eu/sales/prices", "disk", 3)
        assert (settings["table"], settings["engine"], settings["keys"], settings["lag"]) == (
            "settings",
            "memory",
            1,
            0,
        )
        (partition,) = settings["partitions"]
        assert (partition["revision"], partition["snapshot_revision"], partition["reason"]) == (1, -1, None)
        assert settings["bytes"] == partition["bytes"] > 0

        first = (await admin.ask("GET", "/kv/v1?limit=1")).json()
        assert (first["tables"][0]["table"], first["after"]) == ("eu/sales/prices", "eu/sales/prices")
        second = (await admin.ask("GET", "/kv/v1?limit=1&after=eu%2Fsales%2Fprices")).json()
        assert (second["tables"][0]["table"], second["after"]) == ("settings", None)
        monkeypatch.setattr(table_list, "PARTITIONS_MAX", 2)
        assert [each["table"] for each in (await admin.ask("GET", "/kv/v1")).json()["tables"]] == ["eu/sales/prices"]
        for query in ("limit=0", "limit=1001", "page=1", "after=%FF"):
            assert (await admin.ask("GET", f"/kv/v1?{query}")).status_code == 400
        admin.deciding.refuse({(Operation.DESCRIBE, ResourceType.TOPIC)})
        assert (await admin.ask("GET", "/kv/v1")).json() == {"tables": [], "after": None}

    beside_table(scenario)
