"""Lists, describes, moves and deletes the durable subscriptions of a topic over HTTP.

1. The leaders of all partitions are asked, with the calls of native clients.
2. A description has null for the numbers of a partition whose leader does not answer. Every other request fails then,
   with 503; a seek or a deletion may have been done in some partitions, and a retry does the rest.
3. A refused deletion deletes nothing, unless a consumer came during the request.

The paths are those of Pulsar, except for `GET` of one subscription and `seek`, which moves to an offset.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gnomon.broker.admin.leader_calls import Answers, LeaderCalls
from gnomon.broker.admin.names import full_name
from gnomon.broker.admin.refusal import AdminRefused
from gnomon.broker.admin.session import check_subscription, session_of
from gnomon.broker.admin.topic_path import TOPIC_PATH, name_at, topic_at
from gnomon.broker.authorization.admin_table import AdminRoute
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation, group, topic
from gnomon.broker.native.subscription_admin import NAMES_MAX
from gnomon.broker.placement.leadership import NOBODY
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.client.errors import NoSuchSubscription
from gnomon.log.topic import Topic

NUMBERS: Final = {
    "offset": "offset",
    "end": "end",
    "acknowledgedAhead": "acknowledged_ahead",
    "backlogRecords": "backlog",
    "backlogBytes": "backlog_bytes",
    "backlogSeconds": "backlog_seconds",
    "heldRecords": "held_records",
    "heldBytes": "held_bytes",
}
"""The fields of a partition in a description, with their names in the leader's answer."""
DELETE_PARAMETERS: Final = frozenset({"force", "authoritative"})
"""Pulsar's clients send both; `force=true` is refused, because a consumer would create the subscription again."""
SEEK_PARAMETERS: Final = frozenset({"to", "partition"})
NUMBER_DIGITS_MAX: Final = 18


class TopicSubscriptions:
    """The routes of one broker's admin API for the subscriptions of topics."""

    def __init__(
        self, records: TopicRecords, placement: Placement, leaders: LeaderCalls, access: Access[AdminRoute]
    ) -> None:
        self._records = records
        self._placement = placement
        self._leaders = leaders
        self._access = access

    def routes(self) -> list[Route]:
        """The routes."""
        one = f"{TOPIC_PATH}/subscription/{{subscription}}"
        return [
            Route(f"{TOPIC_PATH}/subscriptions", self._list, methods=["GET"]),
            Route(one, self._one, methods=["GET", "DELETE"]),
            Route(f"{one}/seek", self._seek, methods=["POST"]),
            Route(f"{one}/resetcursor/{{timestamp}}", self._seek_to_time, methods=["POST"]),
        ]

    async def _one(self, request: Request) -> Response:
        return await (self._delete(request) if request.method == "DELETE" else self._describe(request))

    async def _list(self, request: Request) -> Response:
        route, session = AdminRoute.LIST_SUBSCRIPTIONS, session_of(request)
        self._access.check(route, session, Operation.DESCRIBE, topic(name_at(request)))
        asked = request.query_params
        after, count = asked.get("after", ""), _number("limit", asked.get("limit", str(NAMES_MAX)))
        if not 0 < count <= NAMES_MAX:
            raise AdminRefused(HTTPStatus.BAD_REQUEST, f"limit is a number from 1 to {NAMES_MAX}, not {count}")
        found = await topic_at(self._records, request)

        def visible(name: str) -> bool:
            return self._access.allows(route, session, Operation.DESCRIBE, group(name))

        return JSONResponse(await self._names(found, after, count, visible))

    async def _names(self, found: Topic, after: str, count: int, visible: Callable[[str], bool]) -> list[str]:
        """The next `count` names after `after` of all partitions."""
        names: list[str] = []
        reached: str | None = after
        while reached is not None and len(names) < count:
            pages = _answered(await self._leaders.ask(found, "subscriptions", reached, count)).values()
            reached = min((end for _, end in pages if end is not None), default=None)
            more = {name for page, _ in pages for name in page if reached is None or name <= reached}
            names += [name for name in sorted(more) if visible(name)]
        return names[:count]

    async def _describe(self, request: Request) -> Response:
        name = check_subscription(
            self._access, AdminRoute.DESCRIBE_SUBSCRIPTION, request, Operation.DESCRIBE, Operation.DESCRIBE
        )
        found = await topic_at(self._records, request)
        answers = _of_subscription(await self._leaders.ask(found, "describe_subscription", name), found, name)
        return JSONResponse(
            {
                "topic": full_name(found.name),
                "subscription": name,
                "partitions": [self._partition(found, index, answer) for index, answer in answers.items()],
            }
        )

    def _partition(self, found: Topic, index: int, answer: Any) -> dict[str, Any]:
        leader = self._placement.leader(found, index)
        known = {} if isinstance(answer, Exception) else answer
        attached = known.get("attached")
        return {
            "partition": index,
            "leader": None if leader == NOBODY else leader,
            "type": known.get("type"),
            **{name: known.get(key) for name, key in NUMBERS.items()},
            "consumers": None
            if attached is None
            else [{"consumer": consumer, "address": address} for consumer, address in attached],
        }

    async def _delete(self, request: Request) -> Response:
        name = check_subscription(
            self._access, AdminRoute.DELETE_SUBSCRIPTION, request, Operation.READ, Operation.DELETE
        )
        _check_parameters(request, DELETE_PARAMETERS)
        if request.query_params.get("force", "false").lower() != "false":
            raise AdminRefused(HTTPStatus.BAD_REQUEST, "force is false: close the consumers of the subscription first")
        found = await topic_at(self._records, request)
        for really in (False, True):
            answers = await self._leaders.ask(found, "unsubscribe", name, "", really)
            if not really:  # afterwards another request may have deleted it
                _answered(_of_subscription(answers, found, name))
            else:
                _answered(_having(answers))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _seek(self, request: Request) -> Response:
        route = AdminRoute.SEEK_SUBSCRIPTION
        name = check_subscription(self._access, route, request, Operation.READ, Operation.READ)
        _check_parameters(request, SEEK_PARAMETERS)
        to = request.query_params.get("to", "")
        if to in ("earliest", "latest"):
            return await self._moved(request, name, to, [])
        if not to:
            raise AdminRefused(HTTPStatus.BAD_REQUEST, "say where to: to=earliest, to=latest or to=OFFSET")
        return await self._moved(request, name, "offset", [_number("to", to)])

    async def _seek_to_time(self, request: Request) -> Response:
        route = AdminRoute.SEEK_SUBSCRIPTION_TO_TIME
        name = check_subscription(self._access, route, request, Operation.READ, Operation.READ)
        return await self._moved(request, name, "time", [_number("timestamp", request.path_params["timestamp"])])

    async def _moved(self, request: Request, name: str, where: str, to: list[int]) -> Response:
        """Moves a subscription, and answers with its offsets."""
        found, only = await topic_at(self._records, request), request.query_params.get("partition")
        partitions = None if only is None else [_number("partition", only)]
        if partitions is not None and partitions[0] >= found.partitions:
            raise AdminRefused(
                HTTPStatus.NOT_FOUND, f"the topic has partitions 0 to {found.partitions - 1}, not {partitions[0]}"
            )
        answers = await self._leaders.ask(found, "seek", name, where, to, partitions=partitions)
        offsets = _answered(_of_subscription(answers, found, name))
        return JSONResponse(
            {"partitions": [{"partition": index, "offset": offset} for index, offset in offsets.items()]}
        )


def _having(answers: Answers) -> Answers:
    """The answers of the partitions that have the subscription."""
    return {index: answer for index, answer in answers.items() if not isinstance(answer, NoSuchSubscription)}


def _of_subscription(answers: Answers, found: Topic, name: str) -> Answers:
    """`_having`, unless no partition has it.

    Raises:
        NoSuchSubscription: none has.
    """
    having = _having(answers)
    if not having:
        raise NoSuchSubscription(f"topic {full_name(found.name)} has no subscription {name!r}")
    return having


def _answered(answers: Answers) -> Answers:
    """The answers, if all leaders have given one; otherwise raises the first error."""
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
    return answers


def _check_parameters(request: Request, known: frozenset[str]) -> None:
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise AdminRefused(
            HTTPStatus.BAD_REQUEST, f"parameter {unknown[0]!r} is unknown: use {', '.join(sorted(known))}"
        )


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX):
        raise AdminRefused(HTTPStatus.BAD_REQUEST, f"{name} is a number of at most {NUMBER_DIGITS_MAX} digits")
    return int(text)
