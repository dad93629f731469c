"""The memory of all tables of one broker that keep their entries in memory. Pure.

1. A write that makes a table larger is refused while the tables take more than `bytes_max`; deletions are not.
2. Entries that were given out and are not durable count when they are applied: they are few.
"""

from __future__ import annotations


class TablesMemory:
    """Counts the bytes of entries."""

    def __init__(self, bytes_max: int) -> None:
        """No entry; `bytes_max` is `table.memory_bytes_max`."""
        self.bytes_max = bytes_max
        self.bytes_used = 0

    def refusal(self, more_bytes: int) -> str | None:
        """The reason why a write of as many bytes is refused; None if it is not."""
        if self.bytes_used + more_bytes <= self.bytes_max:
            return None
        return (
            f"the tables of this broker take {self.bytes_used} bytes and {more_bytes} more would exceed the"
            f" {self.bytes_max} of table.memory_bytes_max: delete keys, or raise it"
        )
