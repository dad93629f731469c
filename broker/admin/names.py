"""Names of topics as the admin API writes them: `persistent://tenant/namespace/topic`.

1. `topic_name(full_name(name)) == name` for every valid topic name.
2. The forms `persistent://public/default/orders`, `public/default/orders` and `orders` name the same topic.
"""

from __future__ import annotations

from typing import Final

from gnomon.log.topic_name import DEFAULT_NAMESPACE, InvalidTopicName, plain_name

SCHEME: Final = "persistent://"


def full_name(name: str) -> str:
    """The name with scheme, tenant and namespace."""
    return f"{SCHEME}{name}" if "/" in name else f"{SCHEME}{DEFAULT_NAMESPACE}/{name}"


def topic_name(text: str) -> str:
    """The broker's name for a topic, which is a plain name in the default namespace.

    Args:
        text: with scheme, tenant and namespace; without the scheme; or a plain name of the default namespace.

    Raises:
        InvalidTopicName: the text is not a valid topic name.
    """
    rest = text.removeprefix(SCHEME)
    if rest != text and rest.count("/") != 2:
        raise InvalidTopicName(f"topic name {text!r}: {SCHEME} is followed by tenant/namespace/topic")
    return plain_name(rest)
