"""The parameters of requests for tables. Pure.

1. Each parameter is known and given once, or the request is refused: a misspelt one has no silent effect.
2. Prefixes and keys are percent-encoded bytes, as in a path. `+` is a space, as forms and many clients send it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from gnomon.broker.admin.tables.table_path import checked_key, path_of
from gnomon.broker.admin.tables.unfit_request import UnfitRequest, natural_number, percent_decoded, shown
from gnomon.client.protocol import SCAN_ENTRIES_MAX
from gnomon.log.tables.changes import NO_TTL, TTL_MS_MAX

SCAN_ENTRIES_DEFAULT: Final = 1_000
TABLES_DEFAULT: Final = 100
TABLES_MAX: Final = 1_000
"""Tables that one answer lists."""
PARAMETERS_MAX: Final = 100
REVISIONS_MAX: Final = 1_000
"""Partitions that one parameter gives revisions for."""
_SECONDS: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")

Parameters = Mapping[str, bytes]
"""The decoded values by name."""


class TableListQuery(NamedTuple):
    """The parameters of a list of tables."""

    after: str
    limit: int


class ScanQuery(NamedTuple):
    """The parameters of a scan."""

    prefix: bytes
    after: bytes | None
    limit: int
    keys_only: bool
    stale: bool

    def next_path(self, topic: str, after: bytes) -> str:
        """The path of the page that begins after a key."""
        fields = [f"prefix={quote(self.prefix, safe='')}"] if self.prefix else []
        fields += [f"after={quote(after, safe='')}", f"limit={self.limit}"]
        fields += [f"{name}=true" for name in ("keys_only", "stale") if getattr(self, name)]
        return f"{path_of(topic)}?{'&'.join(fields)}"


class WatchQuery(NamedTuple):
    """The parameters of a watch."""

    prefix: bytes
    revisions: Mapping[int, int] | int | None
    """The first revision, by partition or of the only one; None for the changes from now on."""
    initial: bool
    """Whether the present values come first."""


def parse_parameters(query: bytes, known: frozenset[str]) -> Parameters:
    """The parameters of a query.

    Raises:
        UnfitRequest: one is unknown, given twice, or not percent-encoded.
    """
    found: dict[str, bytes] = {}
    fields = [field for field in query.split(b"&") if field]
    if len(fields) > PARAMETERS_MAX:
        raise UnfitRequest(f"the query has {len(fields)} parameters: {PARAMETERS_MAX} are allowed")
    for field in fields:
        raw_name, _, raw = field.partition(b"=")
        name = percent_decoded("the name of a parameter", raw_name).decode("utf-8", "backslashreplace")
        if name not in known:
            use = f"use {', '.join(sorted(known))}" if known else "there are none here"
            raise UnfitRequest(f"parameter {shown(name)} is unknown: {use}")
        if name in found:
            raise UnfitRequest(f"parameter '{name}' is given twice")
        found[name] = percent_decoded(f"parameter '{name}'", raw.replace(b"+", b" "))
    return found


def parse_get(query: bytes) -> bool:
    """Whether an older value will do; raises UnfitRequest."""
    return _flag(parse_parameters(query, frozenset({"stale"})), "stale", default=False)


def parse_put(query: bytes) -> int:
    """The time to live in milliseconds, NO_TTL for none.

    Raises:
        UnfitRequest: it is none.
    """
    given = parse_parameters(query, frozenset({"ttl_seconds"})).get("ttl_seconds")
    if given is None:
        return NO_TTL
    text = _text("ttl_seconds", given)
    seconds = float(text) if _SECONDS.fullmatch(text) else 0.0
    if not 0.001 <= seconds <= TTL_MS_MAX / 1_000:
        raise UnfitRequest(f"ttl_seconds is a number from 0.001 to {TTL_MS_MAX // 1_000}, not {shown(text)}")
    return round(seconds * 1_000)


def parse_list(query: bytes) -> TableListQuery:
    """The parameters of a list of tables; raises UnfitRequest."""
    found = parse_parameters(query, frozenset({"after", "limit"}))
    return TableListQuery(_text("after", found.get("after", b"")), _limit(found, TABLES_DEFAULT, TABLES_MAX))


def parse_scan_or_watch(query: bytes) -> ScanQuery | WatchQuery:
    """The parameters of a request for several keys; raises UnfitRequest."""
    names = {field.partition(b"=")[0] for field in query.split(b"&")}
    if b"watch" in names:
        known = frozenset({"watch", "prefix", "revision", "initial"})
        found = parse_parameters(query, known)
        if not _flag(found, "watch", default=False):
            raise UnfitRequest("leave 'watch' out for a scan")
        return _watch(found)
    found = parse_parameters(query, frozenset({"prefix", "after", "limit", "keys_only", "stale"}))
    after = found.get("after")
    return ScanQuery(
        checked_key("the prefix", found.get("prefix", b"")),
        None if after is None else checked_key("the key 'after'", after),
        _limit(found, SCAN_ENTRIES_DEFAULT, SCAN_ENTRIES_MAX),
        _flag(found, "keys_only", default=False),
        _flag(found, "stale", default=False),
    )


def _watch(found: Parameters) -> WatchQuery:
    given = found.get("revision")
    revisions = None if given is None else parse_revisions(_text("revision", given))
    if revisions is not None and "initial" in found and _flag(found, "initial", default=True):
        raise UnfitRequest("a watch begins with the present values (initial=true) or at a revision, not with both")
    prefix = checked_key("the prefix", found.get("prefix", b""))
    return WatchQuery(prefix, revisions, revisions is None and _flag(found, "initial", default=True))


def parse_revisions(text: str) -> Mapping[int, int] | int:
    """The revisions that a watch begins at: `17`, or by partition `0:17,1:4`.

    Raises:
        UnfitRequest: the text has another form.
    """
    if ":" not in text:
        return natural_number("revision", text)
    pairs = text.split(",")
    if len(pairs) > REVISIONS_MAX:
        raise UnfitRequest(f"revision has {len(pairs)} partitions: {REVISIONS_MAX} are allowed")
    found: dict[int, int] = {}
    for pair in pairs:
        partition, _, revision = pair.partition(":")
        index = natural_number("a partition of 'revision'", partition)
        if index in found:
            raise UnfitRequest(f"revision has partition {index} twice")
        found[index] = natural_number(f"the revision of partition {index}", revision)
    return found


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnfitRequest(f"parameter '{name}' is not UTF-8") from None


def _flag(found: Parameters, name: str, *, default: bool) -> bool:
    value = found.get(name)
    if value is None:
        return default
    if value in (b"", b"true"):
        return True
    if value == b"false":
        return False
    raise UnfitRequest(f"{name} is true or false, not {shown(value.decode('utf-8', 'backslashreplace'))}")


def _limit(found: Parameters, default: int, most: int) -> int:
    given = found.get("limit")
    if given is None:
        return default
    limit = natural_number("limit", _text("limit", given))
    if not 1 <= limit <= most:
        raise UnfitRequest(f"limit is a number from 1 to {most}, not {limit}")
    return limit
