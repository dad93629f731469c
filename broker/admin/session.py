"""The session of an HTTP request, and the checks that it may use the topic and the subscription in the path."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request

from gnomon.broker.admin.refusal import AdminRefused
from gnomon.broker.admin.topic_path import name_at
from gnomon.broker.authorization.admin_table import AdminRoute
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation, group, topic
from gnomon.broker.authorization.session import ANONYMOUS, Session
from gnomon.log.subscription_keys import InvalidSubscriber, subscriber_in_key

LISTENER = "ADMIN"


def check_topic(access: Access[AdminRoute], route: AdminRoute, request: Request, operation: Operation) -> None:
    """Checks that the session of a request may do an operation on the topic in its path.

    Raises:
        KafkaError: the session may not.
        AdminRefused: the path has no valid topic name.
    """
    access.check(route, session_of(request), operation, topic(name_at(request)))


def check_subscription(
    access: Access[AdminRoute], route: AdminRoute, request: Request, on_topic: Operation, on_group: Operation
) -> str:
    """Checks that the session of a request may do operations on the topic and on the subscription in its path.

    Returns:
        The name of the subscription.

    Raises:
        KafkaError: the session may not.
        AdminRefused: the path has no valid topic name, or no valid name of a subscription.
    """
    check_topic(access, route, request, on_topic)
    name: str = request.path_params["subscription"]
    try:
        subscriber_in_key(name)
    except InvalidSubscriber as error:
        raise AdminRefused(HTTPStatus.NOT_FOUND, f"there is no such subscription: {error}") from None
    access.check(route, session_of(request), on_group, group(name))
    return name


def session_of(request: Request) -> Session:
    """The session of a request."""
    address = "" if request.client is None else request.client.host
    return Session(ANONYMOUS, LISTENER, request.headers.get("user-agent", ""), address)
