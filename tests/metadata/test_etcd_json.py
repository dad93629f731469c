"""The JSON of requests to etcd and of its answers, without an etcd."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.metadata.client import (
    Compare,
    HistoryCompacted,
    InvalidRequest,
    KeyField,
    LeaseNotFound,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
    Revision,
)
from gnomon.metadata.etcd.json import Keyspace, RevisionCompacted, WatchMessages, error_of
from gnomon.metadata.request import Txn

KEYSPACE = Keyspace("p/")


def event(revision: int, key: str) -> dict[str, Any]:
    written = str(revision)
    return {"kv": {"key": KEYSPACE.key(key), "create_revision": written, "mod_revision": written, "version": "1"}}


def message(*events: dict[str, Any], revision: int = 100, **more: Any) -> dict[str, Any]:
    return {"header": {"revision": str(revision)}, **({"events": list(events)} if events else {}), **more}


def received(messages: WatchMessages, *parts: dict[str, Any]) -> list[tuple[int, list[str]]]:
    batches = [batch for part in parts for batch in messages.receive(part)]
    return [(batch.revision, [event.key for event in batch.events]) for batch in batches]


def test_a_transaction_without_operations_also_asks_the_leader() -> None:
    """Invariant 2: etcd answers a transaction without operations from the member's own state."""
    body = KEYSPACE.txn_body(Txn((Compare.absent("a"),), (), ()))
    read = [{"request_range": {"key": KEYSPACE.key("")}}]
    assert (body["success"], body["failure"]) == (read, read)
    answer = {"header": {"revision": "7"}, "succeeded": True, "responses": [{"response_range": {}}]}
    assert KEYSPACE.txn_result(Txn((Compare.absent("a"),), (), ()), answer).results == ()


def test_comparisons_with_an_empty_value_are_nested_with_swapped_branches() -> None:
    request = Txn(
        (Compare("a", KeyField.VALUE, b""), Compare("b", KeyField.VERSION, 2), Compare("c", KeyField.VALUE, b"")), ()
    )
    body = KEYSPACE.txn_body(request)
    assert [compare["target"] for compare in body["compare"]] == ["VERSION"]
    for key in "ac":
        (operation,) = body["success"]
        body = {"success": operation["request_txn"]["failure"]}
        assert operation["request_txn"]["compare"] == [
            {"key": KEYSPACE.key(key), "target": "VALUE", "result": "NOT_EQUAL", "value": ""}
        ]


@pytest.mark.parametrize(("position", "start"), [(0, "1"), (1, "1"), (2, "1"), (3, "2"), (1000, "999")])
def test_a_watch_request_starts_one_revision_before_the_position(position: int, start: str) -> None:
    """Invariant 3."""
    assert KEYSPACE.watch_body("", Revision(position))["create_request"]["start_revision"] == start


def test_events_before_the_position_are_dropped() -> None:
    """Invariant 3."""
    messages = WatchMessages(KEYSPACE, Revision(5))
    assert received(messages, message(event(4, "a"), event(5, "b"), event(6, "c"))) == [(5, ["b"]), (6, ["c"])]
    assert messages.position == 7


def test_a_revision_cut_into_many_messages_is_one_batch() -> None:
    """Invariant 4."""
    messages = WatchMessages(KEYSPACE, Revision(1))
    cut = [
        message(event(2, "a"), event(3, "b"), fragment=True),
        message(event(3, "c"), fragment=True),
        message(event(3, "d"), event(4, "e"), fragment=True),
        message(event(4, "f")),
    ]
    assert received(messages, cut[0]) == [(2, ["a"])]
    assert messages.position == 3
    assert received(messages, *cut[1:]) == [(3, ["b", "c", "d"]), (4, ["e", "f"])]


def test_an_incomplete_revision_is_dropped_with_its_connection() -> None:
    messages = WatchMessages(KEYSPACE, Revision(1))
    assert received(messages, message(event(3, "a"), fragment=True)) == []
    messages.reconnected()
    assert received(messages, message(event(3, "a"), event(3, "b"))) == [(3, ["a", "b"])]


def test_only_a_progress_notification_advances_the_position_without_events() -> None:
    messages = WatchMessages(KEYSPACE, Revision(5))
    messages.receive(message(created=True, revision=50))
    assert messages.position == 5
    messages.receive(message(revision=50))
    assert messages.position == 51
    messages.receive(message(revision=40))
    assert messages.position == 51


def test_a_watch_that_etcd_ends_is_an_error() -> None:
    messages = WatchMessages(KEYSPACE, Revision(5))
    with pytest.raises(HistoryCompacted) as raised:
        messages.receive(message(canceled=True, compact_revision="9"))
    assert (raised.value.asked, raised.value.oldest) == (5, 10)
    with pytest.raises(MetadataUnavailable, match="permission"):
        messages.receive(message(canceled=True, cancel_reason="no permission"))


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (5, "etcdserver: requested lease not found", LeaseNotFound),
        (11, "etcdserver: mvcc: required revision has been compacted", RevisionCompacted),
        (11, "etcdserver: too large lease TTL", InvalidRequest),
        (3, "etcdserver: too many operations in txn request", InvalidRequest),
        (3, "etcdserver: request is too large", InvalidRequest),
        (3, "etcdserver: user name is empty", MetadataUnavailable),
        (16, "etcdserver: invalid auth token", MetadataUnavailable),
        (8, "grpc: received message larger than max (3 vs. 2)", InvalidRequest),
        (8, "etcdserver: mvcc: database space exceeded", MetadataUnavailable),
        (8, "etcdserver: too many requests", MetadataUnavailable),
        (14, "etcdserver: no leader", MetadataUnavailable),
        (14, "etcdserver: request timed out", MetadataUnavailable),
        (2, "anything else", MetadataUnavailable),
    ],
)
def test_only_errors_of_requests_that_etcd_did_not_apply_are_refusals(
    code: int, text: str, expected: type[MetadataError]
) -> None:
    """Invariant 5; the errors of a watch have their code in another field."""
    for answer in ({"code": code, "message": text}, {"grpc_code": code, "message": text}):
        error = error_of(answer, "http://e")
        assert type(error) is expected
        assert not isinstance(error, MetadataFull)


def test_keys_outside_the_prefix_cannot_be_named() -> None:
    """Invariant 1."""
    assert KEYSPACE.below("") == {"key": "cC8=", "range_end": "cDA="}  # p/ to p0
    assert KEYSPACE.below("a", after="ab") == {"key": "cC9hYgA=", "range_end": "cC9i"}
