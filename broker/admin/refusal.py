"""Refusals of the admin API: an HTTP status, and a body `{"reason": …}`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gnomon.bookie.errors import LedgerError
from gnomon.broker.admin.tables.unfit_request import UnfitRequest
from gnomon.broker.errors import KafkaError
from gnomon.client.errors import (
    Compacted,
    CrossPartition,
    InvalidCall,
    InvalidRecords,
    NativeError,
    NoSuchSubscription,
    NoSuchTopic,
    NotATable,
    NotAuthorized,
    OutcomeUnknown,
    SubscriptionTaken,
    TooLarge,
)
from gnomon.log.subscription_keys import SubscriptionsError
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import WorldError
from gnomon.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.types import ExceptionHandler  # a name of 0.35

STATUSES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.TOPIC_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.INVALID_TOPIC_EXCEPTION: HTTPStatus.CONFLICT,
    ErrorCode.INVALID_CONFIG: HTTPStatus.PRECONDITION_FAILED,
    ErrorCode.INVALID_PARTITIONS: HTTPStatus.PRECONDITION_FAILED,
    ErrorCode.POLICY_VIOLATION: HTTPStatus.PRECONDITION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The HTTP status of each Kafka error of topic administration. Names are checked before; an INVALID_TOPIC_EXCEPTION
after that check means that the name collides with the name of another topic."""


NATIVE_STATUSES: Final[Mapping[type[NativeError], HTTPStatus]] = {
    NoSuchTopic: HTTPStatus.NOT_FOUND,
    NoSuchSubscription: HTTPStatus.NOT_FOUND,
    SubscriptionTaken: HTTPStatus.PRECONDITION_FAILED,
    InvalidCall: HTTPStatus.BAD_REQUEST,
    CrossPartition: HTTPStatus.BAD_REQUEST,
    NotAuthorized: HTTPStatus.FORBIDDEN,
    NotATable: HTTPStatus.CONFLICT,
    Compacted: HTTPStatus.GONE,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    InvalidRecords: HTTPStatus.INSUFFICIENT_STORAGE,
    OutcomeUnknown: HTTPStatus.GATEWAY_TIMEOUT,
}
"""The HTTP status of an error of the native service; each other one is 503. A leader refuses valid records only if the
table or the topic has no room for them."""
RETRY_SOON: Final[Mapping[str, str]] = {"Retry-After": "1"}


class AdminRefused(HTTPException):
    """The request is refused; the reason says why, and what to do."""

    def __init__(
        self,
        status: HTTPStatus,
        reason: str,
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """`fields` are in the body, beside the reason."""
        super().__init__(status, reason, headers)
        self.fields = fields or {}


def exception_handlers(log: Logger) -> dict[type[Exception], ExceptionHandler]:
    """The handlers that turn exceptions into answers, by exception type."""

    async def broken(request: Request, error: Exception) -> Response:
        log.error("admin_request_failed", method=request.method, path=request.scope["path"], reason=repr(error))
        return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the broker failed at this request; its log has the error")

    return {
        HTTPException: _refused,
        KafkaError: _refused_as_kafka,
        ClientDisconnect: _gone,
        NativeError: _refused_as_native,
        UnfitRequest: _refused_as_unfit,
        **dict.fromkeys((MetadataError, WorldError, LedgerError, SubscriptionsError), _unavailable),
        Exception: broken,
    }


def status_of(error: NativeError) -> HTTPStatus:
    """The HTTP status of an error of the native service."""
    return NATIVE_STATUSES.get(type(error), HTTPStatus.SERVICE_UNAVAILABLE)


def _answer(
    status: int,
    reason: str,
    headers: Mapping[str, str] | None = None,
    fields: Mapping[str, object] | None = None,
) -> Response:
    return JSONResponse({"reason": reason, **(fields or {})}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason, headers = error.detail, dict(error.headers or {})
    if not isinstance(error, AdminRefused) and error.status_code == HTTPStatus.NOT_FOUND:
        reason = f"nothing is served at {request.scope['path']}: /admin/v2/openapi.json lists all paths"
    elif not isinstance(error, AdminRefused) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))  # Starlette joins a set, in any order
        reason = f"{request.method} is not served at {request.scope['path']}; use {headers['Allow']}"
    return _answer(error.status_code, reason, headers, error.fields if isinstance(error, AdminRefused) else None)


async def _refused_as_kafka(request: Request, error: Exception) -> Response:
    assert isinstance(error, KafkaError)
    return _answer(STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR), error.text)


async def _refused_as_native(request: Request, error: Exception) -> Response:
    assert isinstance(error, NativeError)
    status = status_of(error)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return _answer(status, f"try again: {error}", RETRY_SOON)
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return _answer(status, f"the outcome is unknown: {error}")
    return _answer(status, str(error))


async def _refused_as_unfit(request: Request, error: Exception) -> Response:
    assert isinstance(error, UnfitRequest)
    return _answer(error.status, str(error))


async def _unavailable(request: Request, error: Exception) -> Response:
    return _answer(HTTPStatus.SERVICE_UNAVAILABLE, f"try again: {error}", RETRY_SOON)


async def _gone(request: Request, error: Exception) -> Response:
    return _answer(HTTPStatus.BAD_REQUEST, "the connection ended before the whole body arrived")
