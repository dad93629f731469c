"""The header in front of requests."""

from __future__ import annotations

from gnomon.wire.kafka.schema import Message, int16, int32, legacy_string


class RequestHeader(Message, versions=(1, 2), flexible=2):
    """Stands before every request; `api.request_header_version` tells its version."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = legacy_string.nullable()
