"""The memory that the members of all groups of a broker take: their metadata, their assignments and their ids. Pure.

1. `bytes_used` is the sum of the bytes of the groups that the shards of the broker have, after each of their turns.
2. A request that would need more than `room` is refused, and its client asks again later. A request that needs no more
   than its member has is never refused for this reason.
"""

from __future__ import annotations

BYTES_MAX = 32 << 20
"""Room for some 10,000 members with 3 KB each."""


class MembersMemory:
    """The bytes of the groups of one broker."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.bytes_used = 0

    def room(self, count: int) -> bool:
        """Whether groups may grow by `count` bytes; they may always become smaller."""
        return count <= 0 or self.bytes_used + count <= self._bytes_max

    def grew(self, count: int) -> None:
        """Groups have grown by `count` bytes, or become smaller."""
        self.bytes_used += count
        assert self.bytes_used >= 0, "groups gave back more memory than they took"
