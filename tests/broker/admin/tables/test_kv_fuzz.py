"""Any request for tables gets a clear answer, and the broker goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from raw_requests import raw_ask, raw_scope

PATHS = st.one_of(
    st.sampled_from(
        [b"", b"/", b"/settings", b"/settings/", b"/settings/colour", b"/orders/a", b"/none/a", b"/settings/%"]
    ),
    st.binary(max_size=20).map(lambda rest: b"/settings/" + rest.replace(b"?", b"")),
    st.text("/%2Fsetinga", max_size=20).map(lambda rest: b"/" + rest.encode()),
)
QUERIES = st.one_of(
    st.just(b""),
    st.sampled_from(
        [b"stale=true", b"limit=5", b"keys_only", b"ttl_seconds=5", b"watch&revision=99", b"after=%00", b"a=b"]
    ),
    st.binary(max_size=12),
    st.text("&=%watchlim0:,1", max_size=20).map(str.encode),
)
TAGS = st.sampled_from([b'"0"', b'"1"', b"*", b"", b"x", b'W/"0"', b'"0", "1"', b"\xff", b'"' + b"9" * 30 + b'"'])
HEADERS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([b"if-match", b"if-none-match"]), TAGS),
        st.tuples(st.just(b"content-type"), st.sampled_from([b"application/json", b"text/plain", b"\xff"])),
        st.tuples(st.just(b"content-length"), st.sampled_from([b"0", b"-1", b"99999999999", b"x", b"\xb2"])),
    ),
    max_size=3,
)
BODIES = st.one_of(
    st.binary(max_size=50),
    st.sampled_from([b'{"then": [["put", "YQ==", "YQ=="]]}', b'{"then": [["incr", "YQ=="]]}', b"{" * 99, b"[" * 5_000]),
)
METHODS = st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
REQUESTS = st.lists(st.tuples(METHODS, PATHS, QUERIES, HEADERS, BODIES), min_size=30, max_size=60)


@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(requests=REQUESTS)
def test_any_request_is_served_or_refused_with_a_reason(beside_table: Callable[..., None], requests: Any) -> None:
    async def scenario(admin: Any) -> None:
        for method, path, query, headers, body in requests:
            if b"watch" in query and b"revision=99" not in query:
                query = query.replace(b"w", b"v")  # a watch does not end
            answer = await raw_ask(admin.app, raw_scope(method, b"/kv/v1" + path, query, headers), body)
            assert answer.status < 500, answer.body
            if answer.status >= 400 and method != "HEAD":
                assert 0 < len(json.loads(answer.body)["reason"]) < 1_000
        assert (await raw_ask(admin.app, raw_scope("PUT", b"/kv/v1/settings/last"), b"x")).status == 204

    beside_table(scenario)
