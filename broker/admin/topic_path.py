"""The topic that a request's path names."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.requests import Request

from gnomon.broker.admin.names import SCHEME, full_name, topic_name
from gnomon.broker.admin.refusal import AdminRefused
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.log.topic import Topic
from gnomon.log.topic_name import InvalidTopicName

TOPIC_PATH: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


def name_at(request: Request) -> str:
    """The broker's name for the topic in a request's path.

    Raises:
        AdminRefused: the path has no valid topic name.
    """
    at = request.path_params
    try:
        return topic_name(f"{SCHEME}{at['tenant']}/{at['namespace']}/{at['topic']}")
    except InvalidTopicName as error:
        raise AdminRefused(HTTPStatus.NOT_FOUND, f"there is no such topic: {error}") from None


async def topic_at(records: TopicRecords, request: Request) -> Topic:
    """The topic in a request's path, read from the metadata service.

    Raises:
        AdminRefused: the topic does not exist.
    """
    name = name_at(request)
    topic = await records.current(name)
    if topic is None:
        raise AdminRefused(HTTPStatus.NOT_FOUND, f"topic {full_name(name)} does not exist")
    return topic
