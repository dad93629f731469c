"""The headers in front of requests and responses."""

from __future__ import annotations

from gnomon.wire.kafka.schema import Message, int16, int32, legacy_string


class RequestHeader(Message, versions=(1, 2), flexible=2):
    """Stands before every request; `api.request_header_version` tells its version."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = legacy_string.nullable()


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    """Stands before every response; `api.response_header_version` tells its version."""

    correlation_id: int = int32()
