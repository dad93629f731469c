"""The body of a request: a JSON array of names of topics, within bounds.

1. Nothing of a body is looked at before it is whole, and no more of it is held than BODY_BYTES_MAX.
2. Who sends slowly is waited for no longer than BODY_SECONDS_MAX; nobody else waits meanwhile.
3. Only `application/json` is taken: a page in a browser cannot send that to another site without being asked about it.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

import trio
from starlette.requests import Request

from gnomon.broker.admin.names import topic_name
from gnomon.broker.admin.refusal import AdminRefused
from gnomon.log.topic_name import InvalidTopicName

BODY_BYTES_MAX: Final = 256 << 10
BODY_SECONDS_MAX: Final = 10.0
NAMES_MAX: Final = 1000
SHOWN_CHARACTERS_MAX: Final = 100

_FORM = 'send a JSON array of names of topics, such as ["persistent://public/default/orders-copy"]'


async def named_topics(request: Request) -> list[str] | None:
    """The topics that the body names, each once, by the names that the broker has for them; None without a body.

    Raises:
        Refused: the body is too large or too slow, not JSON or something else than an array of names.
    """
    body = await _read(request)
    if not body:
        return None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise AdminRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the content type is {content_type!r}: use application/json"
        )
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise AdminRefused(HTTPStatus.BAD_REQUEST, f"the body is not JSON ({error}): {_FORM}") from None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise AdminRefused(HTTPStatus.BAD_REQUEST, f"the body is not an array of texts: {_FORM}")
    if len(found) > NAMES_MAX:
        raise AdminRefused(HTTPStatus.BAD_REQUEST, f"the body has {len(found)} names: send at most {NAMES_MAX} at once")
    return list(dict.fromkeys(map(asked_name, found)))


def asked_name(text: str) -> str:
    """The name that the broker has for a topic that a request names.

    Raises:
        Refused: no topic can be called so.
    """
    try:
        return topic_name(text)
    except InvalidTopicName as error:
        shown = str(error) if len(text) <= SHOWN_CHARACTERS_MAX else f"a topic name has {len(text)} characters"
        raise AdminRefused(HTTPStatus.BAD_REQUEST, shown) from None


async def _read(request: Request) -> bytes:
    body = bytearray()
    with trio.move_on_after(BODY_SECONDS_MAX):
        async for part in request.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise AdminRefused(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {BODY_BYTES_MAX} bytes", _CLOSE
                )
        return bytes(body)
    raise AdminRefused(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {BODY_SECONDS_MAX} seconds", _CLOSE)


_CLOSE = {"Connection": "close"}
