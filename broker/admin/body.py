"""The body of a request to the admin API, within bounds; most are a JSON array of names of topics.

1. A body is parsed once it is complete, and refused as soon as more of it has arrived than its bound, or was announced.
2. A slow client has BODY_SECONDS_MAX to send its body; other requests do not wait for it.
3. Only `application/json` is accepted: a browser sends that type to another site only after a CORS preflight.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
    """The distinct topic names in the body, in the broker's form; None without a body.

    Raises:
        AdminRefused: the body is too large, too slow, or not a JSON array of at most NAMES_MAX valid names.
    """
    body = await read_body(request, BODY_BYTES_MAX, f"the body is larger than {BODY_BYTES_MAX} bytes")
    if not body:
        return None
    check_json(request)
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
    """The broker's name for a topic that a request names.

    Raises:
        AdminRefused: the text is not a valid topic name.
    """
    try:
        return topic_name(text)
    except InvalidTopicName as error:
        shown = str(error) if len(text) <= SHOWN_CHARACTERS_MAX else f"a topic name has {len(text)} characters"
        raise AdminRefused(HTTPStatus.BAD_REQUEST, shown) from None


def check_json(request: Request) -> None:
    """Checks the type of a body that is there.

    Raises:
        AdminRefused: it is not said to be JSON.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise AdminRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the content type is {content_type!r:.{SHOWN_CHARACTERS_MAX}}: use application/json",
        )


async def read_body(
    request: Request, bytes_max: int, reason: str, take: Callable[[int], None] = lambda count: None
) -> bytes:
    """The whole body of a request.

    Args:
        reason: says that it is larger than `bytes_max`.
        take: is called with the size of each part before it is kept, and may raise.

    Raises:
        AdminRefused: the body is too large or too slow.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise AdminRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason, _CLOSE)
    body = bytearray()
    with trio.move_on_after(BODY_SECONDS_MAX):
        async for part in request.stream():
            take(len(part))
            body += part
            if len(body) > bytes_max:
                raise AdminRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason, _CLOSE)
        return bytes(body)
    raise AdminRefused(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {BODY_SECONDS_MAX} seconds", _CLOSE)


_CLOSE = {"Connection": "close"}
