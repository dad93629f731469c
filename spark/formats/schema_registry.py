"""Fetches schemas from a schema registry with Confluent's interface, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from gnomon.spark.formats.avro_schema import UnknownSchema
from gnomon.spark.formats.decoder import BadFormat

TIMEOUT_SECONDS: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 << 20

_SHOWN_CHARACTERS_MAX: Final = 200
_FOUND: Final = 200
_NOT_FOUND: Final = 404
_UNKNOWN: Final = (40401, 40402, 40403)
"""The registry's codes; without one of them, the address is wrong."""


class UnusableRegistry(Exception):
    """The registry cannot be reached, refuses the request, or does not answer with a schema."""


class RegisteredSchema(NamedTuple):
    """A schema of the registry."""

    schema_id: int
    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str


class SchemaRegistry:
    """A schema registry.

    Args:
        url: its address, such as `http://localhost:8081`.
        timeout_seconds: the longest pause of an answer.
        headers: sent with each request, such as `Authorization`.

    Raises:
        BadFormat: the address is not one of HTTP.
    """

    def __init__(
        self, url: str, timeout_seconds: float = TIMEOUT_SECONDS, headers: Mapping[str, str] | None = None
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise BadFormat(f"the schema registry's address {url!r} does not begin with http:// or https:// and a host")
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **(headers or {})}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id.

        Raises:
            UnknownSchema: the registry has none.
            BadFormat: the schema refers to others.
            UnusableRegistry: see there.
        """
        return self._schema(f"/schemas/ids/{schema_id}", f"schema {schema_id}", schema_id)

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject, such as `orders-value`.

        Raises:
            UnknownSchema: the registry does not have the subject.
            BadFormat: the schema refers to others.
            UnusableRegistry: see there.
        """
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject!r}", None)

    def _schema(self, path: str, wanted: str, schema_id: int | None) -> RegisteredSchema:
        status, body = self._answer(path)
        answer = _json_of(body) if len(body) <= ANSWER_BYTES_MAX else None
        if not isinstance(answer, dict):
            answer = {}
        if status == _NOT_FOUND and answer.get("error_code") in _UNKNOWN:
            raise UnknownSchema(f"the schema registry {self._url} does not have {wanted}")
        if status != _FOUND:
            reason = str(answer.get("message", ""))[:_SHOWN_CHARACTERS_MAX]
            raise UnusableRegistry(
                f"the schema registry {self._url} refuses the request for {wanted}: status {status}, {reason!r}"
            )
        found = schema_id if schema_id is not None else answer.get("id")
        text, kind = answer.get("schema"), answer.get("schemaType", "AVRO")
        if type(found) is not int or not isinstance(text, str) or not isinstance(kind, str):
            raise UnusableRegistry(f"the schema registry {self._url} does not answer with a schema for {wanted}")
        if answer.get("references"):
            raise BadFormat(f"{wanted} of the schema registry {self._url} refers to other schemas: give one schema")
        return RegisteredSchema(found, kind, text)

    def _answer(self, path: str) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        request = Request(self._url + path, headers=self._headers)
        try:
            try:
                response = urlopen(request, timeout=self._timeout_seconds)
            except HTTPError as error:
                response = error
            with response:
                return response.status, response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise UnusableRegistry(f"the schema registry {self._url} cannot be reached: {error}") from None


def _json_of(body: bytes) -> Any:
    """The JSON of an answer; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
