"""The header in front of requests."""

from __future__ import annotations

from gnomon.wire.kafka.schema import ProtocolMessage, int16, int32, legacy_string


class RequestHeader(ProtocolMessage, versions=(1, 2), flexible=2):
    """The header of every request; `api.request_header_version` gives its version."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = legacy_string.nullable()
