"""The key slots of one batch's records, computed a slice at a time, from any record on. Pure.

1. A record that cannot be read, and all records after it, have the slot of the batch's base offset, so that one
   consumer gets them. An offset without a record has the slot of a record without a key.
2. A look skips at most WALKED_AT_ONCE records to reach its first record; if that is not enough, it returns no slots,
   and the next look continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.broker.subscriptions.key_slots import KEY_BYTES_MAX, slot_of
from gnomon.log.entry import Offset
from gnomon.wire.kafka.primitives import Buffer
from gnomon.wire.kafka.records import read_keys, read_keys_by_offset

WALKED_AT_ONCE = 1_000


class RecordSlots:
    """The slots of one batch; each call brings the bytes of the records."""

    __slots__ = ("_base", "_dense", "_last", "_marks", "_readable_to")

    def __init__(self, base: Offset, end: Offset, *, dense: bool = True) -> None:
        """The batch that covers the offsets from `base` to before `end`, with a record at each if it is `dense`."""
        self._base = base
        self._dense = dense
        self._readable_to: int = end
        self._marks: dict[int, int] = {base: 0}
        """Byte positions of the first records of slices, by offset."""
        self._last: tuple[int, Sequence[int]] = (-1, ())

    def look(self, data: Buffer, first: int, count: int) -> Sequence[int]:
        """The slots of `count` places from offset `first` on, or of fewer; none if the caller has to call again.

        Args:
            data: the uncompressed records of the batch.
        """
        if self._last[0] == first:  # several subscriptions read the same slice
            return self._last[1][:count]
        if first not in self._marks and first < self._readable_to:
            begin = max(mark for mark in self._marks if mark < first)
            walked = min(first - begin, WALKED_AT_ONCE)
            self._keys(data, begin, walked)
            if begin + walked < first:
                return ()
        offsets = range(first, first + count)
        keys = self._keys(data, first, count) if first < self._readable_to else []
        slots = [slot_of(key, offset) for key, offset in zip(keys, offsets, strict=False)]
        if len(slots) < count:
            slots += [slot_of(None, self._base)] * (count - len(slots))
        self._last = first, slots
        return slots

    def _keys(self, data: Buffer, first: int, count: int) -> list[Buffer | None]:
        mark = self._marks[first]
        if self._dense:
            keys, position = read_keys(data, mark, count, KEY_BYTES_MAX)
        else:
            keys, position = read_keys_by_offset(data, mark, first - self._base, count, KEY_BYTES_MAX)
        if len(keys) == count:
            self._marks[first + count] = position
        else:
            self._readable_to = first + len(keys)
        return keys
