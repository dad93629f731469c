"""Keys of a table over HTTP: put, read, compared and deleted at their paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from raw_requests import open_answer, raw_ask, raw_scope

from gnomon.broker.admin.tables import body_room, table_routes
from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.client.errors import BrokerUnreachable, InvalidRecords, OutcomeUnknown, Unavailable
from gnomon.client.tables.table_partition import TablePartition
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicState

Run = Callable[..., None]
COLOUR = "/kv/v1/settings/colour"
NUMBERS = ("etag", "gnomon-revision", "gnomon-create-revision", "gnomon-version", "gnomon-partition")


def numbers(response: Any) -> tuple[str | None, ...]:
    return tuple(response.headers.get(name) for name in NUMBERS)


def test_a_value_is_put_read_and_deleted_with_its_numbers_in_headers(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for value, revision, version in ((b"green", 0, 1), (b"\x00\xff", 1, 2), (b"", 2, 3)):
            put = await admin.ask("PUT", COLOUR, content=value)
            assert (put.status_code, numbers(put)) == (204, (f'"{revision}"', str(revision), "0", str(version), "0"))
            got = await admin.ask("GET", COLOUR)
            assert (got.status_code, got.content, numbers(got)) == (200, value, numbers(put))
        assert got.headers["content-type"] == "application/octet-stream"
        head = await admin.ask("HEAD", COLOUR)
        assert (head.status_code, numbers(head)) == (200, numbers(got))
        assert (await admin.ask("GET", f"{COLOUR}?stale=true")).content == b""

        deleted = await admin.ask("DELETE", COLOUR)
        assert (deleted.status_code, numbers(deleted)) == (204, (None, "3", None, None, "0"))
        for method in ("GET", "HEAD", "DELETE"):
            absent = await admin.ask(method, COLOUR)
            assert (absent.status_code, numbers(absent)) == (404, (None, None, None, None, "0"))
        assert absent.json() == {"reason": "key b'colour' of table 'settings' is absent: nothing was deleted"}
        again = await admin.ask("PUT", COLOUR, content=b"blue")
        assert numbers(again) == ('"4"', "4", "4", "1", "0"), "a version counts from the last deletion on"

    beside_table(scenario)


def test_a_write_is_done_only_if_its_condition_holds_and_a_refusal_shows_the_present_entry(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        absent = await admin.ask("PUT", COLOUR, content=b"x", headers={"If-Match": '"0"'})
        assert (absent.status_code, numbers(absent)) == (412, (None, None, None, None, "0"))
        assert (await admin.ask("PUT", COLOUR, content=b"x", headers={"If-Match": "*"})).status_code == 412
        assert (await admin.ask("DELETE", COLOUR, headers={"If-Match": "*"})).status_code == 412

        first = await admin.ask("PUT", COLOUR, content=b"green", headers={"If-None-Match": "*"})
        assert (first.status_code, numbers(first)) == (204, ('"0"', "0", "0", "1", "0"))
        for headers in ({"If-None-Match": "*"}, {"If-Match": '"5"'}):
            for method in ("PUT", "DELETE"):
                refused = await admin.ask(method, COLOUR, headers=headers)
                assert (refused.status_code, numbers(refused)) == (412, numbers(first))
                assert refused.json()["reason"] == "key b'colour' of table 'settings' has revision 0"
        second = await admin.ask("PUT", COLOUR, content=b"blue", headers={"If-Match": first.headers["etag"]})
        assert (second.status_code, numbers(second)) == (204, ('"1"', "1", "0", "2", "0"))
        third = await admin.ask("PUT", COLOUR, content=b"red", headers={"If-Match": "*"})
        assert third.headers["etag"] == '"2"'
        assert (await admin.ask("DELETE", COLOUR, headers={"If-Match": '"2"'})).status_code == 204

    beside_table(scenario)


def test_a_read_sends_no_value_that_the_client_has(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        put = await admin.ask("PUT", COLOUR, content=b"green")
        for known in ('"0"', '"7", "0"', 'W/"0"', "*"):
            same = await admin.ask("GET", COLOUR, headers={"If-None-Match": known})
            assert (same.status_code, same.content, numbers(same)) == (304, b"", numbers(put))
        assert (await admin.ask("GET", COLOUR, headers={"If-None-Match": '"7"'})).content == b"green"
        assert (await admin.ask("GET", COLOUR, headers={"If-Match": '"0"'})).content == b"green"
        assert (await admin.ask("GET", COLOUR, headers={"If-Match": '"7"'})).status_code == 412
        assert (await admin.ask("GET", f"{COLOUR}2", headers={"If-None-Match": "*"})).status_code == 404
        assert (await admin.ask("GET", f"{COLOUR}2", headers={"If-Match": "*"})).status_code == 412

    beside_table(scenario)


@pytest.mark.parametrize(
    "raw", [b"", b"%2F", b"a%2Fb%2f", b"%00", b"%FF%fe", b"a+b", b"%25", b"%2E%2E", b"~!$", b"%C3%BC"]
)
def test_a_key_is_any_bytes_percent_encoded_in_the_path(beside_table: Run, raw: bytes) -> None:
    async def scenario(admin: Any) -> None:
        path = b"/kv/v1/settings/" + raw
        assert (await raw_ask(admin.app, raw_scope("PUT", path), b"there")).status == 204
        assert (await raw_ask(admin.app, raw_scope("GET", path))).body == b"there"
        (entry,) = (await admin.ask("GET", "/kv/v1/settings")).json()["entries"]
        assert entry["value"] == "dGhlcmU="
        assert (await raw_ask(admin.app, raw_scope("DELETE", path))).status == 204

    beside_table(scenario)


def test_the_longest_key_has_500_bytes(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        assert (await admin.ask("PUT", f"/kv/v1/settings/{'%00' * 500}", content=b"x")).status_code == 204
        refused = await admin.ask("PUT", f"/kv/v1/settings/{'%00' * 501}", content=b"x")
        assert (refused.status_code, refused.json()["reason"]) == (400, "the key has 501 bytes: 500 are allowed")

    beside_table(scenario)


def test_a_topic_goes_by_its_full_name_with_escaped_slashes(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        kafka = await admin.node.connect()
        await kafka.create_topic("eu/sales/prices", 1, configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        assert (await admin.ask("PUT", "/kv/v1/eu%2Fsales%2Fprices/tea", content=b"3")).status_code == 204
        for name in ("eu%2fsales%2Fprices", "persistent:%2F%2Feu%2Fsales%2Fprices"):
            assert (await admin.ask("GET", f"/kv/v1/{name}/tea")).content == b"3"
        assert (await admin.ask("PUT", "/kv/v1/public%2Fdefault%2Fsettings/tea", content=b"4")).status_code == 204
        assert (await admin.ask("GET", "/kv/v1/settings/tea")).content == b"4"

    beside_table(scenario)


def test_a_key_lives_as_long_as_its_time_to_live(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        put = await admin.ask("PUT", f"{COLOUR}?ttl_seconds=1.5", content=b"green", headers={"If-None-Match": "*"})
        expires_ms = int(put.headers["gnomon-expires-ms"])
        assert expires_ms == pytest.approx(admin.node.simulation.clock.wall_ms() + 1_500, abs=100)
        assert (await admin.ask("GET", COLOUR)).headers["gnomon-expires-ms"] == str(expires_ms)
        await admin.node.simulation.sleep(3)
        assert (await admin.ask("GET", COLOUR)).status_code == 404

    beside_table(scenario)


def test_a_value_larger_than_the_topic_takes_is_413_with_the_number(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        reason = "the value is larger than 1000 bytes: max.message.bytes of topic 'settings' allows 1000"
        refused = await admin.ask("PUT", COLOUR, content=b"x" * 1_001)
        assert (refused.status_code, refused.json()["reason"]) == (413, reason)
        assert (await admin.ask("PUT", COLOUR, content=b"x" * 999)).status_code == 413, (
            "a batch has more than the value"
        )
        assert (await admin.ask("PUT", COLOUR, content=b"x" * 800)).status_code == 204

    beside_table(scenario, configs={"max.message.bytes": "1000"})


def test_bodies_take_a_bounded_memory_together(beside_table: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_room, "BODIES_BYTES_MAX", 1_000)

    async def scenario(admin: Any) -> None:
        for _ in range(3):
            refused = await admin.ask("PUT", COLOUR, content=b"x" * 1_001)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert (await admin.ask("PUT", COLOUR, content=b"x" * 1_000)).status_code == 204

    beside_table(scenario)


READS = [
    ("GET", b"/kv/v1/settings/colour", b"", b""),
    ("GET", b"/kv/v1/settings/colour", b"stale=true", b""),
    ("GET", b"/kv/v1/settings", b"", b""),
    ("POST", b"/kv/v1/settings", b"", b'{"then": [["get", "Y29sb3Vy"]]}'),
    ("GET", b"/kv/v1", b"", b""),
]


@pytest.mark.parametrize(("method", "path", "query", "body"), READS)
def test_answers_that_slow_clients_do_not_take_have_a_bounded_memory_together(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch, method: str, path: bytes, query: bytes, body: bytes
) -> None:
    monkeypatch.setattr(body_room, "BODIES_BYTES_MAX", 5_000)
    scope = raw_scope(method, path, query, [(b"content-type", b"application/json")])

    async def scenario(admin: Any) -> None:
        assert (await admin.ask("PUT", COLOUR, content=b"x" * 2_000)).status_code == 204
        async with AsyncExitStack() as slow:
            for _ in range(2):
                answer = await slow.enter_async_context(open_answer(admin.app, scope, body))
                assert await answer.head() == 200
            refused = await raw_ask(admin.app, scope, body)
            assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
            assert b"the answers that clients have not taken are" in refused.body
            assert (await admin.ask("PUT", COLOUR, content=b"x" * 2_000)).status_code == 204
            assert (await raw_ask(admin.app, raw_scope("GET", b"/livez"))).status == 200
        assert (await raw_ask(admin.app, scope, body)).status == 200

    beside_table(scenario)


REFUSALS: list[tuple[str, str, dict[str, str], int, str]] = [
    ("GET", "settings/%zz", {}, 400, "the key has '%zz': two hexadecimal digits follow a %"),
    ("GET", "settings/a%", {}, 400, "the key has '%': two"),
    ("GET", "settings/a/b", {}, 400, "the path has 3 parts after /kv/v1: a topic and a key are expected"),
    ("GET", "%FF/a", {}, 400, "the name of the topic is not UTF-8"),
    ("GET", "a%20b/a", {}, 404, "there is no such topic: topic name 'a b'"),
    ("GET", "/a", {}, 404, "there is no such topic: topic name has 0 characters"),
    ("GET", f"{'x' * 2_000}/a", {}, 404, "there is no such topic: its name has 2000 characters"),
    ("GET", "none/a", {}, 404, "topic persistent://public/default/none does not exist"),
    ("GET", "orders/a", {}, 409, "topic 'orders' is no table: tables are created with gnomon.view=kv"),
    ("PUT", "orders/a", {}, 409, "topic 'orders' is no table"),
    ("GET", "settings/a?stale=maybe", {}, 400, "stale is true or false, not 'maybe'"),
    ("GET", "settings/a?stale=true&stale=true", {}, 400, "parameter 'stale' is given twice"),
    ("GET", "settings/a?fresh=true", {}, 400, "parameter 'fresh' is unknown: use stale"),
    ("DELETE", "settings/a?stale=true", {}, 400, "parameter 'stale' is unknown: there are none here"),
    ("PUT", "settings/a?ttl_seconds=0", {}, 400, "ttl_seconds is a number from 0.001 to 1125899906842, not '0'"),
    ("PUT", "settings/a?ttl_seconds=-1", {}, 400, "ttl_seconds is a number from 0.001"),
    ("PUT", "settings/a?ttl_seconds=nan", {}, 400, "ttl_seconds is a number from 0.001"),
    ("PUT", "settings/a?ttl_seconds=soon", {}, 400, "ttl_seconds is a number from 0.001"),
    ("PUT", "settings/a?ttl_seconds=", {}, 400, "ttl_seconds is a number from 0.001"),
    ("PUT", "settings/a?ttl=1", {}, 400, "parameter 'ttl' is unknown: use ttl_seconds"),
    ("PUT", "settings/a", {"If-Match": "5"}, 400, 'If-Match is a revision in quotes, such as "17"'),
    ("PUT", "settings/a", {"If-Match": '"-1"'}, 400, "If-Match is a revision in quotes"),
    ("PUT", "settings/a", {"If-Match": '"1", "2"'}, 400, "If-Match has 2 entity tags: send one"),
    ("PUT", "settings/a", {"If-Match": 'W/"1"'}, 400, "If-Match is a revision in quotes"),
    ("PUT", "settings/a", {"If-None-Match": '"1"'}, 400, "If-None-Match of a write is *, not '\"1\"'"),
    ("PUT", "settings/a", {"If-None-Match": "*", "If-Match": '"1"'}, 400, "If-Match and If-None-Match are both"),
    ("GET", "settings/a", {"If-None-Match": "x"}, 400, "If-None-Match is a revision in quotes"),
    ("POST", "settings/a", {}, 405, "POST is not served at /kv/v1/settings/a; use DELETE, GET, HEAD, PUT"),
]


def test_a_malformed_request_is_refused_with_what_is_wrong_and_changes_nothing(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for method, path, headers, status, reason in REFUSALS:
            raw, _, query = path.encode().partition(b"?")
            lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            answer = await raw_ask(admin.app, raw_scope(method, b"/kv/v1/" + raw, query, lines), b"value")
            assert answer.status == status, (method, path, answer.body)
            assert json.loads(answer.body)["reason"].startswith(reason)
            assert len(answer.body) < 600
        assert (await admin.ask("GET", "/kv/v1/settings?keys_only=true")).json()["revisions"] == {"0": -1}

    beside_table(scenario)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Unavailable("the table is being loaded"), 503, "try again: the table is being loaded"),
        (BrokerUnreachable("the leader is gone"), 503, "try again: the leader is gone"),
        (OutcomeUnknown("no answer within 30 s"), 504, "the outcome is unknown: no answer within 30 s"),
        (InvalidRecords("the memory of tables is used up"), 507, "the memory of tables is used up"),
    ],
)
def test_a_failure_of_the_leader_says_whether_to_try_again(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, reason: str
) -> None:
    async def fail(*args: Any) -> Any:
        raise error

    monkeypatch.setattr(TablePartition, "transact", fail)

    async def scenario(admin: Any) -> None:
        answer = await admin.ask("PUT", COLOUR, content=b"x")
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
        assert (answer.headers.get("retry-after") == "1") == (status == 503)

    beside_table(scenario)


def test_a_write_whose_entry_cannot_be_read_back_is_answered_with_its_revision(
    beside_table: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*args: Any, **fields: Any) -> Any:
        await trio.sleep_forever()

    async def scenario(admin: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(TablePartition, "get", never)
            put = await admin.ask("PUT", COLOUR, content=b"green")
        assert (put.status_code, numbers(put)) == (204, ('"0"', "0", None, None, "0"))
        assert (await admin.ask("GET", COLOUR)).content == b"green"

    beside_table(scenario)


def test_a_write_needs_both_operations_and_a_read_one(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for operation, refused in ((Operation.WRITE, {"PUT", "DELETE"}), (Operation.READ, {"GET", "PUT", "DELETE"})):
            admin.deciding.refuse({(operation, ResourceType.TOPIC)})
            for method in ("GET", "PUT", "DELETE"):
                answer = await admin.ask(method, COLOUR)
                assert (answer.status_code == 403) == (method in refused)
            missing = await admin.ask("PUT", "/kv/v1/none/colour")
            assert missing.status_code == 403, "a refusal says nothing about the existence of a topic"

    beside_table(scenario)


def test_a_value_beyond_one_call_to_a_leader_is_413(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        most = table_routes.VALUE_BYTES_MAX
        refused = await admin.ask("PUT", COLOUR, content=b"x" * (most + 1))
        assert refused.status_code == 413
        assert refused.json()["reason"].endswith(f"a request may have {most}")
        assert (await admin.ask("PUT", COLOUR, content=b"x" * most)).status_code == 204
        assert len((await admin.ask("GET", COLOUR)).content) == most

    beside_table(scenario, configs={"max.message.bytes": str(8 << 20)})


def test_a_table_that_is_created_again_is_another_one(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        for value in (b"one", b"two"):
            await admin.ask("PUT", COLOUR, content=value)
        kafka = await admin.node.connect()
        topics = [DeleteTopicState(name="settings")]
        await kafka.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1_000), 6)
        assert (await admin.ask("GET", COLOUR)).status_code == 404
        await kafka.create_topic("settings", 1, configs={"gnomon.view": "kv", "gnomon.view.engine": "memory"})
        assert (await admin.ask("GET", COLOUR)).json() == {"reason": "key b'colour' of table 'settings' is absent"}
        assert (await admin.ask("PUT", COLOUR, content=b"three")).headers["etag"] == '"0"'

    beside_table(scenario)


def test_the_calls_of_the_api_are_no_native_clients_and_survive_a_lost_connection(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        assert (await admin.ask("PUT", COLOUR, content=b"one")).status_code == 204
        content = (await admin.ask("GET", "/metrics")).text
        assert "gnomon_native_connections 0.0" in content
        (connection,) = admin.administered.tables.leaders._to_leaders.values()
        connection.rpc._connection.abort()
        connection.rpc.lost(connection.rpc._connection, "cut by the test")
        assert (await admin.ask("PUT", COLOUR, content=b"two")).headers["etag"] == '"1"'

    beside_table(scenario)


def test_a_broker_that_stops_takes_no_request(beside_table: Run) -> None:
    async def scenario(admin: Any) -> None:
        admin.administered.tables.leaders.end()
        refused = await admin.ask("GET", COLOUR)
        assert (refused.status_code, refused.json()["reason"]) == (503, "try again: this broker stops: ask another one")

    beside_table(scenario)
