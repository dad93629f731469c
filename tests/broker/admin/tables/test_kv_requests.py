"""The pure parts of the REST API of tables: paths, parameters, conditions, documents, pages and answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.admin.tables.key_condition import KeyCondition, parse_condition, tag_of
from gnomon.broker.admin.tables.merged_page import MergedPage
from gnomon.broker.admin.tables.table_answers import PIECE_BYTES, event_pieces, page_pieces, transaction_pieces
from gnomon.broker.admin.tables.table_path import TablePath, parse_path, parts_below, path_of, topic_of
from gnomon.broker.admin.tables.table_query import (
    ScanQuery,
    WatchQuery,
    parse_get,
    parse_list,
    parse_put,
    parse_revisions,
    parse_scan_or_watch,
)
from gnomon.broker.admin.tables.transaction_body import DOCUMENT_BYTES_MAX, parse_transaction
from gnomon.broker.admin.tables.unfit_request import UnfitRequest
from gnomon.log.tables.key_entry import KeyEntry, pack_entry
from gnomon.log.tables.operations import (
    OPERATIONS_MAX,
    CompareOperator,
    CompareTarget,
    Comparison,
    DeleteKey,
    GetKey,
    IncrementKey,
    PutKey,
)

KEYS = st.binary(max_size=500)
SOME_KEYS = st.lists(st.binary(max_size=3), unique=True, max_size=30)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def refused(error: pytest.ExceptionInfo[UnfitRequest]) -> str:
    text = str(error.value)
    assert 400 <= error.value.status < 500
    assert 0 < len(text) < 500
    return text


def status_of(parse: Callable[..., object], *args: Any, **fields: Any) -> int:
    """200, or the status of the refusal."""
    try:
        parse(*args, **fields)
    except UnfitRequest as error:
        assert_short(str(error))
        return error.status
    return 200


def assert_short(reason: str) -> None:
    assert 0 < len(reason) < 1_000


# --- paths ------------------------------------------------------------------------------------------------------


@given(KEYS, st.sampled_from(["settings", "eu/sales/prices"]))
def test_a_path_has_any_key_and_any_topic(key: bytes, topic: str) -> None:
    raw = f"{path_of(topic)}/{quote(key, safe='')}".encode()
    assert parts_below(raw) == 2
    assert parse_path(raw) == TablePath(topic, key)
    assert topic_of(raw) == topic


def test_the_parts_of_a_path_are_counted_before_they_are_decoded() -> None:
    paths = [b"/kv/v1", b"/kv/v1/", b"/kv/v1/a", b"/kv/v1/a/", b"/kv/v1/a%2Fb/c", b"/kv/v1/a/b/c"]
    assert [parts_below(path) for path in paths] == [0, 1, 1, 2, 2, 3]
    assert [parts_below(path) for path in (b"", b"/kv/v11", b"/kv", b"/admin/kv/v1")] == [None] * 4


@given(st.one_of(st.binary(max_size=80), st.text("%/0aFz", max_size=20).map(str.encode)))
def test_any_bytes_are_a_path_or_refused(rest: bytes) -> None:
    raw = b"/kv/v1/" + rest
    assert status_of(topic_of, raw) in (200, 400, 404)
    if parts_below(raw) != 1:
        assert status_of(parse_path, raw) in (200, 400, 404)


# --- parameters -------------------------------------------------------------------------------------------------


@given(KEYS, st.none() | KEYS, st.integers(1, 10_000), st.booleans(), st.booleans())
def test_the_path_of_the_next_page_is_parsed_as_its_query(
    prefix: bytes, after: bytes | None, limit: int, keys_only: bool, stale: bool
) -> None:
    query = ScanQuery(prefix, after, limit, keys_only, stale)
    path, _, found = query.next_path("settings", b"last").partition("?")
    assert path == "/kv/v1/settings"
    assert parse_scan_or_watch(found.encode()) == query._replace(after=b"last")


def test_the_parameters_of_each_request() -> None:
    assert parse_scan_or_watch(b"") == ScanQuery(b"", None, 1_000, False, False)
    assert parse_scan_or_watch(b"prefix=a+b%2B&&after=&keys_only=false") == ScanQuery(b"a b+", b"", 1_000, False, False)
    assert parse_scan_or_watch(b"watch") == WatchQuery(b"", None, True)
    assert parse_scan_or_watch(b"watch=true&initial=false&prefix=%FF") == WatchQuery(b"\xff", None, False)
    assert parse_scan_or_watch(b"watch=&revision=0:17%2C1:4") == WatchQuery(b"", {0: 17, 1: 4}, False)
    assert parse_revisions("17") == 17
    assert [parse_get(query) for query in (b"", b"stale", b"stale=true", b"stale=false")] == [False, True, True, False]
    assert [parse_put(query) for query in (b"", b"ttl_seconds=0.001", b"ttl_seconds=2.5")] == [0, 1, 2_500]
    assert parse_list(b"after=a%2Fb&limit=7") == ("a/b", 7)


@pytest.mark.parametrize(
    "seconds", ["", "0", "0.0001", "-1", "1e3", "inf", "nan", "٣", "1125899906843", "1" * 400, "1."]
)
def test_another_time_to_live_is_refused(seconds: str) -> None:
    with pytest.raises(UnfitRequest, match=r"ttl_seconds is a number from 0\.001 to 1125899906842, not ") as error:
        parse_put(f"ttl_seconds={quote(seconds)}".encode())
    refused(error)


@given(st.one_of(st.binary(max_size=60), st.text("&=%watchrevison0:,1", max_size=40).map(str.encode)))
def test_any_query_is_parsed_or_refused(query: bytes) -> None:
    for parse in (parse_scan_or_watch, parse_get, parse_put, parse_list):
        assert status_of(parse, query) in (200, 400)


# --- conditions -------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**18 - 1))
def test_the_tag_of_a_revision_is_its_condition(revision: int) -> None:
    condition = parse_condition([tag_of(revision)], [], writes=True)
    assert condition == KeyCondition(match=revision)
    assert condition.comparisons(b"k") == [Comparison(b"k", CompareTarget.REVISION, CompareOperator.EQUAL, revision)]
    assert not condition.refuses_read(KeyEntry(b"", revision, 0, 1))
    assert condition.refuses_read(KeyEntry(b"", revision + 1, 0, 1))
    known = parse_condition([], [f"W/{tag_of(revision)} , {tag_of(5)}"], writes=False)
    assert known.has(KeyEntry(b"", revision, 0, 1))
    assert known.has(KeyEntry(b"", 5, 0, 1))


def test_a_condition_holds_of_a_key_as_http_says() -> None:
    absent, there = KeyEntry(b"", -1, -1, 0), KeyEntry(b"v", 3, 1, 2)
    for headers, holds_absent, holds_there in (
        ((["*"], []), False, True),
        (([], ["*"]), True, False),
        ((['"3"'], []), False, True),
        ((['"4"'], []), False, False),
        (([], []), True, True),
    ):
        comparisons = parse_condition(*headers, writes=True).comparisons(b"k")
        assert all(each.holds(absent) for each in comparisons) == holds_absent
        assert all(each.holds(there) for each in comparisons) == holds_there


@given(st.lists(st.text('*W/"0, x', max_size=8), max_size=3), st.lists(st.text('*"0, ', max_size=8), max_size=3))
def test_any_header_is_a_condition_or_refused(if_match: list[str], if_none_match: list[str]) -> None:
    for writes in (False, True):
        status = status_of(parse_condition, if_match, if_none_match, writes=writes)
        assert status in (200, 400)
        if status == 200:
            found = parse_condition(if_match, if_none_match, writes=writes)
            assert (found == KeyCondition()) == (not if_match and not if_none_match), "no header is without effect"


# --- transactions -----------------------------------------------------------------------------------------------


def test_a_document_has_the_words_of_the_command_line_with_base64() -> None:
    body = {
        "compare": [["value", b64(b"a"), "==", None], ["value", b64(b"a"), "<", b64(b"v")], ["version", "", ">", 0]],
        "then": [["put", b64(b"a"), b64(b"\xff")], ["put", b64(b"b"), "", 1.5], ["incr", b64(b"n")]],
        "otherwise": [["delete", b64(b"a")], ["get", b64(b"a")], ["incr", b64(b"n"), -5]],
    }
    found = parse_transaction(json.dumps(body).replace("/", "\\/").encode())
    assert found.compare == [
        Comparison(b"a", CompareTarget.VALUE, CompareOperator.EQUAL, None),
        Comparison(b"a", CompareTarget.VALUE, CompareOperator.LESS, b"v"),
        Comparison(b"", CompareTarget.VERSION, CompareOperator.GREATER, 0),
    ]
    assert found.then == [PutKey(b"a", b"\xff"), PutKey(b"b", b"", 1_500), IncrementKey(b"n")]
    assert found.otherwise == [DeleteKey(b"a"), GetKey(b"a"), IncrementKey(b"n", -5)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not JSON: "),
        (b"\xff", "the body has bytes beyond ASCII"),
        (b"[]", "the body is no JSON object: send one with compare, then, otherwise"),
        (b"{}", "a transaction has 1 to 1000 operations and comparisons, not 0"),
        (b'{"than": []}', 'the field "than" is unknown: the fields are compare, then, otherwise'),
        (b'{"then": [], "then": []}', "the body has a field twice"),
        (b'{"then": {"a": 1}}', "the body has an object within another one"),
        (b'{"then": 1}', "then: write a list of lists"),
        (b'{"then": [1]}', 'then[0]: 1 is no operation: write ["put", KEY, VALUE]'),
        (b'{"then": [["get", "YQ=="], ["put", "YQ=="]]}', 'then[1]: ["put", "YQ=="] is no operation'),
        (b'{"then": [["get", "a"]]}', 'then[0]: the key "a" is no base64: '),
        (b'{"then": [["get", "Y Q=="]]}', 'then[0]: the key "Y Q==" is no base64: '),
        (b'{"then": [["put", "YQ==", 1]]}', "then[0]: the value 1 is no text of base64"),
        (b'{"then": [["put", "YQ==", "", 0]]}', "then[0]: a time to live is 0.001 to 1125899906842 seconds, not 0"),
        (b'{"then": [["put", "YQ==", "", true]]}', "then[0]: a time to live is 0.001"),
        (b'{"then": [["put", "YQ==", "", NaN]]}', "the body is not JSON: NaN is no number"),
        (b'{"then": [["incr", "YQ==", 1.5]]}', "then[0]: 1.5 is no whole number to add"),
        (b'{"then": [["incr", "YQ==", 9223372036854775808]]}', "then[0]: an increment is a number of 64 bits"),
        (b'{"then": [["incr", "YQ==", ' + b"9" * 99 + b"]]}", "the body has a number of 99 characters: 30 are"),
        (b'{"then": [["put", "YQ==", ""], ["delete", "YQ=="]]}', "then: a transaction writes a key once"),
        (b'{"compare": [["value", "YQ==", "=", ""]]}', 'compare[0]: ["value", "YQ==", "=", ""] is no comparison'),
        (b'{"compare": [["value", "YQ==", "==", 5]]}', "compare[0]: the operand 5 is no text of base64"),
        (b'{"compare": [["version", "YQ==", "==", "5"]]}', "compare[0]: a version is compared with a number"),
        (b'{"then": [["get", "' + base64.b64encode(b"k" * 501) + b'"]]}', "then[0]: the key has 501 bytes: 500 are"),
        (b'{"then": [' + b"[]," * 1_003 + b"[]]}", "the body has too many lists: send at most 1000"),
        (b'{"then": [[' + b"1," * 9_000 + b"1]]}", "the body has too many lists"),
        (b'{"then": "' + b"\\n" * 99 + b'"}', "the body has too many backslashes"),
        (b"[" * 1_000 + b"]" * 1_000, "the body is "),
        (b'{"then": ' + b"[" * 900 + b"]" * 900 + b"}", 'then[0]: [[…]] is no operation: write ["put"'),
        (b'{"' + b"x" * 9_000 + b'": 1}', 'the field "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…" is unknown'),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_another_document_is_refused_with_the_place_of_the_mistake(body: bytes, reason: str) -> None:
    with pytest.raises(UnfitRequest) as error:
        parse_transaction(body)
    assert refused(error).startswith(reason)


WORDS: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["put", "get", "delete", "incr", "value", "version", "==", "YQ==", "", "x"]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["then", "compare", "x"]), inner, max_size=2)
    ),
    max_leaves=12,
)


@given(st.one_of(WORDS, st.fixed_dictionaries({"then": WORDS}), st.fixed_dictionaries({"compare": WORDS})))
def test_any_json_is_a_transaction_or_refused(document: Any) -> None:
    body = json.dumps(document).encode()
    status = status_of(parse_transaction, body)
    assert status in (200, 400)
    if status == 200:
        assert 0 < len(parse_transaction(body).keys) <= OPERATIONS_MAX


def test_a_document_of_the_largest_size_is_parsed() -> None:
    count = DOCUMENT_BYTES_MAX // 1_600
    body = json.dumps({"then": [["put", b64(b"%d" % number), b64(b"x" * 1_100)] for number in range(count)]}).encode()
    assert 0.8 * DOCUMENT_BYTES_MAX < len(body) <= DOCUMENT_BYTES_MAX * 1.01
    assert len(parse_transaction(body).then) == count


# --- pages and answers ------------------------------------------------------------------------------------------


@given(st.lists(SOME_KEYS, min_size=1, max_size=4), st.integers(1, 20), st.integers(1, 8), st.integers(0, 200))
def test_the_pages_of_a_scan_have_every_key_once_in_order(
    partitions: list[list[bytes]], limit: int, at_once: int, bytes_max: int
) -> None:
    tables: list[list[bytes]] = []
    seen: set[bytes] = set()
    for keys in partitions:  # a key is in one partition
        tables.append(sorted(set(keys) - seen))
        seen |= set(keys)
    found: list[bytes] = []
    after: bytes | None = None
    while True:
        page = MergedPage(limit, bytes_max)
        for index, keys in enumerate(tables):
            rest = [key for key in keys if after is None or key > after]
            part = rest[: min(limit, at_once)]
            listed = [each for key in part for each in (key, pack_entry(key, 1, 1, 1, -1))]
            page.add(index, 5, listed, more=len(part) < len(rest), keys_only=False)
        assert len(page.entries) <= limit
        assert sum(len(each.key) + len(each.packed) for each in page.entries[:-1]) <= bytes_max + 40
        found += [each.key for each in page.entries]
        if page.after is None:
            break
        assert after is None or page.after > after
        after = page.after
    assert found == sorted(seen)


@pytest.mark.parametrize("size", [0, 1, 2, 48 << 10, (48 << 10) + 1, 200_000])
def test_a_long_answer_comes_in_pieces_and_is_one_document(size: int) -> None:
    value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    page = MergedPage(10_000, 1 << 30)
    for index in range(3):
        page.add(index, 7, [b"k%d" % index, pack_entry(value, 4, 3, 2, 9)], more=False, keys_only=False)
    pieces = list(page_pieces(page, "/next", keys_only=False))
    assert all(len(piece) <= 2 * PIECE_BYTES for piece in pieces)
    found = json.loads(b"".join(pieces))
    assert (found["revisions"], found["after"], found["next"]) == ({"0": 7, "1": 7, "2": 7}, None, "/next")
    assert found["entries"][2] == {
        "key": b64(b"k2"),
        "value": b64(value),
        "revision": 4,
        "create_revision": 3,
        "version": 2,
        "expires_ms": 9,
        "partition": 2,
    }
    answers = [pack_entry(value, 4, 3, 2, -1), None]
    done = json.loads(b"".join(transaction_pieces([GetKey(b"a"), GetKey(b"b")], answers, 1, succeeded=False)))
    assert [each["value"] for each in done["answers"]] == [b64(value), None]
    line = b"".join(event_pieces("put", b"k", value, 5, 0))
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert json.loads(line) == {"kind": "put", "key": b64(b"k"), "value": b64(value), "revision": 5, "partition": 0}
    assert json.loads(b"".join(event_pieces("delete", b"k", None, 6, 0)))["value"] is None
