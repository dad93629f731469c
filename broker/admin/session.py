"""The session of an HTTP request, and the check that this session may use the topic in the request's path."""

from __future__ import annotations

from starlette.requests import Request

from gnomon.broker.admin.topic_path import name_at
from gnomon.broker.authorization.admin_table import AdminRoute
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.authorization.session import ANONYMOUS, Session

LISTENER = "ADMIN"


def check_topic(access: Access[AdminRoute], route: AdminRoute, request: Request, operation: Operation) -> None:
    """Checks that the session of a request may do an operation on the topic in its path.

    Raises:
        KafkaError: the session may not.
        AdminRefused: the path has no valid topic name.
    """
    address = "" if request.client is None else request.client.host
    session = Session(ANONYMOUS, LISTENER, request.headers.get("user-agent", ""), address)
    access.check(route, session, operation, topic(name_at(request)))
