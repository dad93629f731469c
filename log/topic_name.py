"""Names of topics: Kafka's rules, and the form with a namespace. Pure."""

from __future__ import annotations

import re

DEFAULT_NAMESPACE = "public/default"
NAME_CHARACTERS_MAX = 249

_PART = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(ValueError):
    """The text says which rule the name breaks."""


def check_topic_name(name: str) -> None:
    """Kafka's rules for a plain name; a name with a namespace is `tenant/namespace/topic`, each part by the same rules.

    Raises:
        InvalidTopicName: the name breaks a rule.
    """
    if not name or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidTopicName(f"topic name has {len(name)} characters: 1 to {NAME_CHARACTERS_MAX} are allowed")
    parts = name.split("/")
    if len(parts) not in (1, 3):
        raise InvalidTopicName(f"topic name {name!r}: use a plain name or tenant/namespace/topic")
    if len(parts) == 3 and name.startswith(f"{DEFAULT_NAMESPACE}/"):
        raise InvalidTopicName(
            f"topic name {name!r}: topics of {DEFAULT_NAMESPACE} go by their plain name {parts[2]!r}"
        )
    for part in parts:
        if part in (".", "..") or not _PART.fullmatch(part):
            raise InvalidTopicName(f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed")


def plain_name(text: str) -> str:
    """The canonical name of a topic: the prefix of the default namespace may be given and is removed.

    Raises:
        InvalidTopicName: no topic can have this name.
    """
    namespace, _, plain = text.rpartition("/")
    name = plain if namespace == DEFAULT_NAMESPACE else text
    check_topic_name(name)
    return name


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def metric_name(name: str) -> str:
    """The topic's name in Kafka's metrics: no two topics may share it, so names must not differ only in '.' and '_'."""
    return name.replace(".", "_")
