"""The REST API of tables: keys, scans, transactions and watches at the leaders, wherever they are in the cluster.

1. A request is checked in this order: topic's name and key, authorization, parameters and conditions, the topic, body.
   A refusal before the fourth reveals nothing about the topic.
2. Nothing is written for a refused request. A write without an answer of its leader is answered with 504.
3. The bodies of all requests have a bounded memory together, and so have all answers: slow clients do not use it up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gnomon.broker.admin.body import check_json, read_body
from gnomon.broker.admin.names import full_name
from gnomon.broker.admin.refusal import RETRY_SOON, AdminRefused
from gnomon.broker.admin.session import session_of
from gnomon.broker.admin.tables.body_room import BodyRoom
from gnomon.broker.admin.tables.held_answer import HeldAnswer
from gnomon.broker.admin.tables.key_condition import KeyCondition, parse_condition
from gnomon.broker.admin.tables.kv_route import KvRoute, raw_path
from gnomon.broker.admin.tables.table_answers import (
    deletion_headers,
    entry_headers,
    list_pieces,
    page_pieces,
    revision_headers,
    transaction_pieces,
)
from gnomon.broker.admin.tables.table_calls import TableCalls, WrittenKey
from gnomon.broker.admin.tables.table_clients import TableClients
from gnomon.broker.admin.tables.table_list import TableList
from gnomon.broker.admin.tables.table_path import ROOT, TablePath, parse_path, topic_of
from gnomon.broker.admin.tables.table_query import (
    ScanQuery,
    WatchQuery,
    parse_get,
    parse_list,
    parse_parameters,
    parse_put,
    parse_scan_or_watch,
)
from gnomon.broker.admin.tables.transaction_body import DOCUMENT_BYTES_MAX, load_document, transaction_of
from gnomon.broker.admin.tables.unfit_request import UnfitRequest
from gnomon.broker.admin.tables.watch_response import WatchResponse
from gnomon.broker.authorization.admin_table import AdminRoute
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.configs.topic_configs import VIEW, is_table
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NotATable
from gnomon.client.protocol import HEADS
from gnomon.client.tables.table_partition import TablePartition
from gnomon.client.tables.table_watch import TableWatch
from gnomon.log.tables.key_entry import KeyEntry
from gnomon.log.tables.operations import DeleteKey, PutKey
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import PAUSE_SECONDS, paced
from gnomon.runtime.world import Clock

VALUE_BYTES_MAX: Final = HEADS.of_method("table_write").bytes_max - (8 << 10)
"""The largest value in a call to a leader, beside its key."""
WATCHED_PARTITIONS_MAX: Final = 1_000
"""The partitions that all watches of one broker follow."""
WATCH_AHEAD_EVENTS: Final = 1
LISTED_BYTES: Final = 1 << 10
"""About the memory of a table, or of a partition, in a list."""
NO_CACHE: Final[Mapping[str, str]] = {"Cache-Control": "no-cache"}
"""A cache asks again before it answers: reads are as new as their requests."""
_WRITES: Final = (Operation.WRITE, Operation.READ)


class TableRoutes:
    """The routes of one broker's REST API for tables."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        placement: Placement,
        clients: TableClients,
        access: Access[AdminRoute],
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._records = records
        self._clients = clients
        self._access = access
        self._clock = clock
        self._list_of_tables = TableList(topics, placement, clients, clock)
        self._bodies = BodyRoom("the bodies of requests")
        self._answers = BodyRoom("the answers that clients have not taken")
        self._watched_partitions = 0

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            KvRoute(ROOT, 0, self._list, ["GET"]),
            KvRoute(f"{ROOT}/{{topic}}", 1, self._several, ["GET", "POST"]),
            KvRoute(f"{ROOT}/{{topic}}/{{key}}", 2, self._one, ["GET", "PUT", "DELETE"]),
        ]

    # --- the list -----------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        query, session = parse_list(_query(request)), session_of(request)

        def visible(name: str) -> bool:
            return self._access.allows(AdminRoute.LIST_TABLES, session, Operation.DESCRIBE, topic(name))

        tables, after = await self._list_of_tables.page(query, visible)
        listed = sum(1 + len(table["partitions"]) for table in tables)
        return self._in_pieces(list_pieces(tables, after), listed * LISTED_BYTES)

    # --- one key ------------------------------------------------------------------------------------------------

    async def _one(self, request: Request) -> Response:
        path = parse_path(raw_path(request.scope))
        if request.method == "PUT":
            return await self._put(request, path)
        return await (self._delete(request, path) if request.method == "DELETE" else self._get(request, path))

    async def _get(self, request: Request, path: TablePath) -> Response:
        self._check(AdminRoute.GET_KEY, request, path.topic, Operation.READ)
        stale, condition = parse_get(_query(request)), _condition(request, writes=False)
        table = await self._table(path.topic, stale=stale)
        partition, age_ms, entry = await TableCalls(self._clients, table).get(path.key, stale=stale)
        age = {"Gnomon-Age-Ms": str(age_ms)} if stale else {}
        if condition.refuses_read(entry):
            raise _not_met(path, partition, entry)
        if entry is None:
            raise AdminRefused(
                HTTPStatus.NOT_FOUND, f"{_named(path)} is absent", {"Gnomon-Partition": str(partition), **age}
            )
        headers = {**entry_headers(entry, partition), **age, **NO_CACHE}
        if condition.has(entry):
            return Response(None, HTTPStatus.NOT_MODIFIED, headers)
        answer = Response(entry.value, HTTPStatus.OK, headers, "application/octet-stream")
        return HeldAnswer(answer, len(entry.value), self._answers)

    async def _put(self, request: Request, path: TablePath) -> Response:
        self._check(AdminRoute.PUT_KEY, request, path.topic, *_WRITES)
        ttl_ms, condition = parse_put(_query(request)), _condition(request, writes=True)
        table = await self._table(path.topic)
        most = self._topics.settings_of(table).batch_bytes_max
        limit = f"max.message.bytes of topic '{table.name}' allows {most}"
        if most > VALUE_BYTES_MAX:
            most, limit = VALUE_BYTES_MAX, f"a request may have {VALUE_BYTES_MAX}"
        with self._bodies.hold() as take:
            value = await read_body(request, most, f"the value is larger than {most} bytes: {limit}", take)
            written = await TableCalls(self._clients, table).write(PutKey(path.key, value, ttl_ms), condition)
        if not written.is_done:
            raise _not_met(path, written.partition, written.entry)
        return Response(None, HTTPStatus.NO_CONTENT, _put_headers(written))

    async def _delete(self, request: Request, path: TablePath) -> Response:
        self._check(AdminRoute.DELETE_KEY, request, path.topic, *_WRITES)
        parse_parameters(_query(request), frozenset())
        condition = _condition(request, writes=True)
        table = await self._table(path.topic)
        written = await TableCalls(self._clients, table).write(DeleteKey(path.key), condition)
        if not written.is_done:
            raise _not_met(path, written.partition, written.entry)
        headers = deletion_headers(written.revision, written.partition)
        if written.revision < 0:
            headers = {"Gnomon-Partition": str(written.partition)}
            raise AdminRefused(HTTPStatus.NOT_FOUND, f"{_named(path)} is absent: nothing was deleted", headers)
        return Response(None, HTTPStatus.NO_CONTENT, headers)

    # --- several keys -------------------------------------------------------------------------------------------

    async def _several(self, request: Request) -> Response:
        name = topic_of(raw_path(request.scope))
        if request.method == "POST":
            return await self._transact(request, name)
        self._check(AdminRoute.SCAN_TABLE, request, name, Operation.READ)
        query = parse_scan_or_watch(_query(request))
        if isinstance(query, ScanQuery):
            return await self._scan(name, query)
        if request.method == "HEAD":
            raise AdminRefused(HTTPStatus.METHOD_NOT_ALLOWED, "a watch has no end: use GET", {"Allow": "GET"})
        return await self._watch(name, query)

    async def _scan(self, name: str, query: ScanQuery) -> Response:
        table = await self._table(name, stale=query.stale)
        page = await TableCalls(self._clients, table).scan(query)
        following = None if page.after is None else query.next_path(name, page.after)
        return self._in_pieces(page_pieces(page, following, keys_only=query.keys_only), page.size_bytes)

    async def _transact(self, request: Request, name: str) -> Response:
        self._check(AdminRoute.TRANSACT, request, name, *_WRITES)
        parse_parameters(_query(request), frozenset())
        check_json(request)
        table = await self._table(name)
        with self._bodies.hold() as take:
            reason = f"the body is larger than {DOCUMENT_BYTES_MAX} bytes: write large values with PUT"
            document = load_document(await read_body(request, DOCUMENT_BYTES_MAX, reason, take))
            await self._clock.sleep(PAUSE_SECONDS)  # each of these steps may take some ms
            body = transaction_of(document)
            await self._clock.sleep(PAUSE_SECONDS)
            done = await TableCalls(self._clients, table).transact(body)
        pieces = transaction_pieces(done.operations, done.answers, done.partition, succeeded=done.succeeded)
        return self._in_pieces(pieces, done.size_bytes)

    def _in_pieces(self, pieces: Iterator[bytes], size_bytes: int) -> Response:
        """An answer whose making holds up nobody; `size_bytes` is the memory of what it is made from."""

        async def following() -> AsyncIterator[bytes]:
            async for piece in paced(pieces, 1, self._clock):
                yield piece

        answer = StreamingResponse(following(), headers=NO_CACHE, media_type="application/json")
        return HeldAnswer(answer, size_bytes, self._answers)

    async def _watch(self, name: str, query: WatchQuery) -> Response:
        table = await self._table(name)
        if self._watched_partitions + table.partitions > WATCHED_PARTITIONS_MAX:
            raise AdminRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"watches of this broker follow {self._watched_partitions} partitions, {WATCHED_PARTITIONS_MAX} are"
                " allowed: ask another broker, or use the native client",
                RETRY_SOON,
            )
        self._watched_partitions += table.partitions
        try:
            calls = TableCalls(self._clients, table)
            revisions = await _first_revisions(calls, table, query)
        except BaseException:
            self._watched_partitions -= table.partitions
            raise

        async def partitions() -> list[TablePartition]:
            return calls.partitions()

        def begin(nursery: trio.Nursery) -> TableWatch:
            return TableWatch(
                self._clock,
                query.prefix,
                revisions,
                partitions,
                nursery,
                initial=query.initial,
                ahead_events=WATCH_AHEAD_EVENTS,
            )

        def ended() -> None:
            self._watched_partitions -= table.partitions

        return WatchResponse(begin, ended)

    # --- checks -------------------------------------------------------------------------------------------------

    def _check(self, route: AdminRoute, request: Request, name: str, *operations: Operation) -> None:
        for operation in operations:
            self._access.check(route, session_of(request), operation, topic(name))

    async def _table(self, name: str, *, stale: bool = False) -> Topic:
        """The table of this name; for stale reads a shadow of one will do."""
        await self._records.find(name)
        found = self._topics.image.get(name)
        if found is None:
            raise AdminRefused(HTTPStatus.NOT_FOUND, f"topic {full_name(name)} does not exist")
        source = found if found.source is None else self._topics.image.source_of(found)
        if source is None or not is_table(source.configs):
            raise NotATable(f"topic '{name}' is no table: tables are created with {VIEW}=kv")
        if source is not found and not stale:
            reason = f"topic '{name}' is a shadow of table '{source.name}' and answers GET with stale=true only"
            raise AdminRefused(HTTPStatus.CONFLICT, f"{reason}: ask the table")
        return found


async def _first_revisions(calls: TableCalls, table: Topic, query: WatchQuery) -> Mapping[int, int] | None:
    """The revisions that a watch begins at; None if it begins with the present values."""
    statuses, given = await calls.statuses(), query.revisions
    if given is None:
        return None if query.initial else {status.partition: status.revision + 1 for status in statuses}
    if isinstance(given, int):
        given = {0: given}
    if set(given) != set(range(table.partitions)):
        raise UnfitRequest(
            f"table '{table.name}' has {table.partitions} partitions: give the revision of each, as 0:17,1:4"
        )
    for status in statuses:
        index, revision = status.partition, given[status.partition]
        if revision < status.log_start:
            raise AdminRefused(
                HTTPStatus.GONE,
                f"the log of partition {index} begins at revision {status.log_start}: read the present values, and"
                " watch from there",
                fields={"first": status.log_start, "partition": index},
            )
        if revision > status.revision + 1:
            following = await calls.next_revision(index)
            if revision > following:
                raise UnfitRequest(
                    f"revision {revision} of partition {index} is in the future: the next one is {following}"
                )
    return given


def _query(request: Request) -> bytes:
    query: bytes = request.scope["query_string"]
    return query


def _condition(request: Request, *, writes: bool) -> KeyCondition:
    headers = request.headers
    return parse_condition(headers.getlist("if-match"), headers.getlist("if-none-match"), writes=writes)


def _put_headers(written: WrittenKey) -> Mapping[str, str]:
    if written.entry is None:
        return revision_headers(written.revision, written.partition)
    return entry_headers(written.entry, written.partition)


def _not_met(path: TablePath, partition: int, entry: KeyEntry | None) -> AdminRefused:
    if entry is None:
        headers = {"Gnomon-Partition": str(partition)}
        return AdminRefused(HTTPStatus.PRECONDITION_FAILED, f"{_named(path)} is absent", headers)
    reason = f"{_named(path)} has revision {entry.revision}"
    return AdminRefused(HTTPStatus.PRECONDITION_FAILED, reason, entry_headers(entry, partition))


def _named(path: TablePath) -> str:
    return f"key {path.key!r:.80} of table '{path.topic}'"
