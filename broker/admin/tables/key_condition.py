"""The conditions of requests for a key: the headers `If-Match` and `If-None-Match`. Pure.

1. The entity tag of a key is its revision in quotes. Tags are strong: the same revision is the same value.
2. A header that is no condition here is refused, not ignored: a write would otherwise be unconditional.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from gnomon.broker.admin.tables.unfit_request import NUMBER_DIGITS_MAX, UnfitRequest, shown
from gnomon.log.tables.key_entry import NO_REVISION, KeyEntry
from gnomon.log.tables.operations import CompareOperator, CompareTarget, Comparison

TAGS_MAX: Final = 100
"""Entity tags in one header."""
_TAG: Final = re.compile(r'"([0-9]{1,18})"')
_WEAK: Final = "W/"
ANY: Final = "*"


class KeyCondition(NamedTuple):
    """The revisions that a request expects of its key."""

    match: int | None = None
    """The revision that the key must have."""
    must_exist: bool = False
    must_be_absent: bool = False
    known: frozenset[int] = frozenset()
    """Revisions that the client has: a read is then answered without the value."""
    known_any: bool = False
    """Whether the client has any: a read of a present key is answered without the value."""

    def comparisons(self, key: bytes) -> list[Comparison]:
        """The comparisons that a write of the key makes."""
        if self.match is not None:
            return [Comparison(key, CompareTarget.REVISION, CompareOperator.EQUAL, self.match)]
        if self.must_exist:
            return [Comparison(key, CompareTarget.VERSION, CompareOperator.GREATER, 0)]
        if self.must_be_absent:
            return [Comparison(key, CompareTarget.REVISION, CompareOperator.EQUAL, NO_REVISION)]
        return []

    def refuses_read(self, entry: KeyEntry | None) -> bool:
        """Whether a read of this entry does not meet If-Match."""
        if self.match is not None:
            return entry is None or entry.revision != self.match
        return self.must_exist and entry is None

    def has(self, entry: KeyEntry) -> bool:
        """Whether the client has this entry already."""
        return self.known_any or entry.revision in self.known


def tag_of(revision: int) -> str:
    """The entity tag of a revision."""
    return f'"{revision}"'


def parse_condition(if_match: Sequence[str], if_none_match: Sequence[str], *, writes: bool) -> KeyCondition:
    """The condition of a request.

    Args:
        if_match, if_none_match: the values of all headers of these names.

    Raises:
        UnfitRequest: it is none.
    """
    if if_match and if_none_match:
        raise UnfitRequest("If-Match and If-None-Match are both given: send one of them")
    if if_match:
        tags = _tags("If-Match", if_match)
        if tags == [ANY]:
            return KeyCondition(must_exist=True)
        if len(tags) != 1:
            raise UnfitRequest(f"If-Match has {len(tags)} entity tags: send one")
        return KeyCondition(match=_revision("If-Match", tags[0]))
    if not if_none_match:
        return KeyCondition()
    tags = _tags("If-None-Match", if_none_match)
    if tags == [ANY]:
        return KeyCondition(known_any=True) if not writes else KeyCondition(must_be_absent=True)
    if writes:
        raise UnfitRequest(f"If-None-Match of a write is *, not {shown(', '.join(tags))}: the key must then be absent")
    return KeyCondition(known=frozenset(_revision("If-None-Match", tag.removeprefix(_WEAK)) for tag in tags))


def _tags(name: str, values: Sequence[str]) -> list[str]:
    tags = [tag.strip() for value in values for tag in value.split(",")]
    if len(tags) > TAGS_MAX:
        raise UnfitRequest(f"{name} has {len(tags)} entity tags: {TAGS_MAX} are allowed")
    return tags


def _revision(name: str, tag: str) -> int:
    found = _TAG.fullmatch(tag)
    if found is None:
        raise UnfitRequest(
            f'{name} is a revision in quotes, such as "17", of at most {NUMBER_DIGITS_MAX} digits, or *;'
            f" not {shown(tag)}"
        )
    return int(found[1])
