"""Lists, replaces, adds and removes the shadows (read-only topics with the same records) of a topic over HTTP.

1. All checks of a request precede its first change. A request that fails after that (for example because the disk is
   full) has made some of its changes, and a retry makes the others.
2. A retry is safe: a shadow that exists is not created again.
3. A request deletes only shadows that existed before its first change. Shadows that another broker creates meanwhile
   stay.

The requests are those of Pulsar's clients (PIP-180). In Pulsar the shadow topics must exist before the request; here
the request creates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gnomon.broker.admin.body import asked_name, named_topics
from gnomon.broker.admin.names import full_name
from gnomon.broker.admin.refusal import AdminRefused
from gnomon.broker.admin.session import check_topic
from gnomon.broker.admin.topic_path import TOPIC_PATH, name_at, topic_at
from gnomon.broker.authorization.admin_table import AdminRoute
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.errors import KafkaError
from gnomon.broker.storage import Storage
from gnomon.broker.topics.cast import BROKER_DEFAULT, SHADOW_SOURCE, shadows_known
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import INTERNAL_TOPICS, Topic
from gnomon.log.topic_name import metric_name
from gnomon.wire.kafka.errors import ErrorCode

DELETE_PARAMETERS = frozenset({"shadow", "authoritative"})
"""Pulsar's clients set `authoritative` after a redirect from another broker; it has no effect here."""

_CHANGES = {
    "PUT": AdminRoute.REPLACE_SHADOWS,
    "POST": AdminRoute.ADD_SHADOWS,
    "DELETE": AdminRoute.DELETE_SHADOWS,
}


def shadows_of(topics: Topics, source: Topic) -> list[Topic]:
    """The shadows of a topic, in the order of their places."""
    return sorted(topics.image.shadows_of(source), key=lambda shadow: (shadow.place, shadow.name))


class ShadowTopics:
    """The routes of one broker's admin API for the shadows of topics."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        admin: TopicAdmin,
        storage: Storage,
        configs: BrokerConfigs,
        access: Access[AdminRoute],
    ) -> None:
        self._topics = topics
        self._records = records
        self._admin = admin
        self._storage = storage
        self._configs = configs
        self._access = access
        self._changing = trio.Lock()

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route(f"{TOPIC_PATH}/shadowTopics", self._serve, methods=["GET", "PUT", "POST", "DELETE"])]

    async def _serve(self, request: Request) -> Response:
        if request.method in ("GET", "HEAD"):
            check_topic(self._access, AdminRoute.LIST_SHADOWS, request, Operation.DESCRIBE)
            source = await topic_at(self._records, request)
            await self._all_known(source)  # another broker may just have created one
            return JSONResponse([full_name(shadow.name) for shadow in shadows_of(self._topics, source)])
        names = await named_topics(request)
        if request.method == "DELETE":
            names = _to_delete(request, names)
        elif names is None:
            raise AdminRefused(HTTPStatus.BAD_REQUEST, "the body is empty: send a JSON array of names of topics")
        async with self._changing:
            source = await self._source_at(request)
            await self._all_known(source)
            before = shadows_of(self._topics, source)
            if request.method == "DELETE":
                await self._delete(before if names is None else _among(before, names, source))
            else:
                assert names is not None, f"{request.method} has names"
                known = {shadow.name for shadow in before}
                missing = await self._missing(source, [name for name in names if name not in known])
                if request.method == "PUT":  # deletes first: new shadows take the freed places
                    stay = set(names)
                    await self._delete([shadow for shadow in before if shadow.name not in stay])
                await self._create(source, missing)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _all_known(self, source: Topic) -> None:
        """Waits until the image shows every shadow that the source has now."""
        await shadows_known(self._storage.metadata, self._topics.follower, source)

    async def _source_at(self, request: Request) -> Topic:
        """The topic in the request's path, if it may have shadows and the session may change them."""
        _refuse_internal(name_at(request), "has no shadows")
        check_topic(self._access, _CHANGES[request.method], request, Operation.CAST)
        topic = await topic_at(self._records, request)
        if topic.source is not None:
            raise AdminRefused(
                HTTPStatus.PRECONDITION_FAILED,
                f"{full_name(topic.name)} is itself a shadow: make shadows of its source, "
                f"{full_name(topic.source.name)}",
            )
        return topic

    async def _missing(self, source: Topic, names: Iterable[str]) -> list[str]:
        """The names of the shadows to create; raises if one of them cannot be created."""
        missing = [name for name in names if await self._lacks(source, name)]
        alike: dict[str, str] = {}
        for name in missing:
            self._new(source, name)
            other = alike.setdefault(metric_name(name), name)
            if other != name:  # the second would be refused once the first exists
                reason = f"{full_name(name)} and {full_name(other)} differ in '.' and '_' alone: choose another name"
                raise AdminRefused(HTTPStatus.CONFLICT, reason)
        return missing

    def _new(self, source: Topic, name: str) -> Topic:
        return self._admin.check_new(name, BROKER_DEFAULT, {SHADOW_SOURCE: source.name})

    async def _create(self, source: Topic, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._admin.create(self._new(source, name))
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or await self._lacks(source, name):
                    raise

    async def _lacks(self, source: Topic, name: str) -> bool:
        """Whether the source has no shadow of this name yet; raises AdminRefused if another topic has the name."""
        _refuse_internal(name, "is no shadow")
        topic = await self._records.current(name)
        if topic is None:
            return True
        if topic.source is None:
            what = "exists, and is not a shadow"
        elif topic.source.id != source.id:
            what = f"is a shadow of {full_name(topic.source.name)} already"
        else:
            return False
        raise AdminRefused(HTTPStatus.CONFLICT, f"{full_name(name)} {what}: choose another name")

    async def _delete(self, shadows: Sequence[Topic]) -> None:
        if shadows and not self._configs.flag("delete.topic.enable"):
            raise AdminRefused(HTTPStatus.FORBIDDEN, "no topic is deleted while delete.topic.enable is false")
        for shadow in shadows:
            try:
                await self._admin.delete(shadow)
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # otherwise another request deleted it first
                    raise


def _refuse_internal(name: str, what: str) -> None:
    if name in INTERNAL_TOPICS:
        reason = f"{full_name(name)} holds the broker's own state and {what}"
        raise AdminRefused(HTTPStatus.METHOD_NOT_ALLOWED, reason, {"Allow": "GET, HEAD"})


def _to_delete(request: Request, names: list[str] | None) -> list[str] | None:
    """The names of the shadows to delete, from the query and the body; None for all shadows."""
    unknown = sorted(set(request.query_params) - DELETE_PARAMETERS)
    if unknown:  # a misspelt parameter must not delete all shadows
        raise AdminRefused(HTTPStatus.BAD_REQUEST, f"parameter {unknown[0]!r} is unknown: the only one is 'shadow'")
    named = [asked_name(text) for text in request.query_params.getlist("shadow")]
    return list(dict.fromkeys([*named, *(names or ())])) if named else names


def _among(shadows: list[Topic], names: list[str], source: Topic) -> list[Topic]:
    known = {shadow.name: shadow for shadow in shadows}
    for name in names:
        if name not in known:
            raise AdminRefused(HTTPStatus.NOT_FOUND, f"{full_name(name)} is not a shadow of {full_name(source.name)}")
    return [known[name] for name in names]
