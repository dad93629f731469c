"""How the admin API says no: a status, and `{"reason": …}` as its body."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from gnomon.bookie.errors import LedgerError
from gnomon.broker.errors import KafkaError
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import WorldError
from gnomon.wire.kafka.errors import ErrorCode

STATUSES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.TOPIC_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.INVALID_TOPIC_EXCEPTION: HTTPStatus.CONFLICT,
    ErrorCode.INVALID_CONFIG: HTTPStatus.PRECONDITION_FAILED,
    ErrorCode.INVALID_PARTITIONS: HTTPStatus.PRECONDITION_FAILED,
    ErrorCode.POLICY_VIOLATION: HTTPStatus.PRECONDITION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""What the refusals of topic administration are here. Names were checked before: what Kafka calls an invalid one then
is one that collides with that of another topic."""


class Refused(HTTPException):
    """The request is not done; the reason says why, and what to do."""

    def __init__(self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, reason, headers)


def exception_handlers(log: Logger) -> dict[type[Exception], ExceptionHandler]:
    """What is answered for each kind of exception."""

    async def broken(request: Request, error: Exception) -> Response:
        log.error("admin_request_failed", method=request.method, path=request.url.path, reason=repr(error))
        return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the broker failed at this request; its log says how")

    return {
        HTTPException: _refused,
        KafkaError: _refused_as_kafka,
        ClientDisconnect: _gone,
        **dict.fromkeys((MetadataError, WorldError, LedgerError), _unavailable),
        Exception: broken,
    }


def _answer(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"reason": reason}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason, headers = error.detail, dict(error.headers or {})
    if not isinstance(error, Refused) and error.status_code == HTTPStatus.NOT_FOUND:
        reason = f"there is nothing at {request.url.path}: /admin/v2/openapi.json says what there is"
    elif not isinstance(error, Refused) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))  # made from a set
        reason = f"{request.method} is not served at {request.url.path}, but {headers['Allow']}"
    return _answer(error.status_code, reason, headers)


async def _refused_as_kafka(request: Request, error: Exception) -> Response:
    assert isinstance(error, KafkaError)
    return _answer(STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR), error.text)


async def _unavailable(request: Request, error: Exception) -> Response:
    return _answer(HTTPStatus.SERVICE_UNAVAILABLE, f"try again: {error}")


async def _gone(request: Request, error: Exception) -> Response:
    return _answer(HTTPStatus.BAD_REQUEST, "the request ended before its body did")
