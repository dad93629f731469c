"""The paths of the REST API of tables: `/kv/v1`, `/kv/v1/TOPIC` and `/kv/v1/TOPIC/KEY`. Pure.

1. Topic and key are percent-encoded in the path as it was sent: `/` is `%2F` in both. So a key may be any bytes.
2. The key is the part after the last slash. `/kv/v1/TOPIC/` is the path of the empty key, `/kv/v1/TOPIC` has none.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import quote

from gnomon.broker.admin.names import topic_name
from gnomon.broker.admin.tables.unfit_request import UnfitRequest, percent_decoded
from gnomon.log.tables.key_entry import KEY_BYTES_MAX
from gnomon.log.topic_name import InvalidTopicName

ROOT: Final = "/kv/v1"
_PREFIX: Final = f"{ROOT}/".encode()
_NAME_BYTES_MAX: Final = 1_000
"""A name that is longer is not quoted."""


class TablePath(NamedTuple):
    """The parts of a path, decoded."""

    topic: str
    """The broker's name of the topic."""
    key: bytes


def parts_below(raw: bytes) -> int | None:
    """The number of parts of a raw path below ROOT; None for a path elsewhere."""
    if raw == ROOT.encode():
        return 0
    return 1 + raw.count(b"/", len(_PREFIX)) if raw.startswith(_PREFIX) else None


def topic_of(raw: bytes) -> str:
    """The topic of a raw path with one part or more.

    Raises:
        UnfitRequest: no topic can have this name.
    """
    return _name(raw.removeprefix(_PREFIX).split(b"/", 1)[0])


def parse_path(raw: bytes) -> TablePath:
    """Topic and key of a raw path with two parts or more.

    Raises:
        UnfitRequest: it has more parts, or no topic or key can be like this.
    """
    parts = raw.removeprefix(_PREFIX).split(b"/")
    name = _name(parts[0])
    if len(parts) > 2:
        raise UnfitRequest(
            f"the path has {len(parts)} parts after {ROOT}: a topic and a key are expected, write / within them as %2F"
        )
    return TablePath(name, checked_key("the key", percent_decoded("the key", parts[1])))


def checked_key(what: str, key: bytes) -> bytes:
    """The key.

    Raises:
        UnfitRequest: it is too long.
    """
    if len(key) > KEY_BYTES_MAX:
        raise UnfitRequest(f"{what} has {len(key)} bytes: {KEY_BYTES_MAX} are allowed")
    return key


def path_of(topic: str) -> str:
    """The path of a topic."""
    return f"{ROOT}/{quote(topic, safe='')}"


def _name(raw: bytes) -> str:
    try:
        text = percent_decoded("the name of the topic", raw).decode()
    except UnicodeDecodeError:
        raise UnfitRequest("the name of the topic is not UTF-8") from None
    if len(text) > _NAME_BYTES_MAX:
        raise UnfitRequest(f"there is no such topic: its name has {len(text)} characters", HTTPStatus.NOT_FOUND)
    try:
        return topic_name(text)
    except InvalidTopicName as error:
        raise UnfitRequest(f"there is no such topic: {error}", HTTPStatus.NOT_FOUND) from None
