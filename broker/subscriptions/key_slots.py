"""Decides which consumer of a key_shared subscription gets which record. Pure.

1. A key belongs to one of SLOTS slots, and a slot to one consumer. Few slots change owners when a consumer attaches or
   detaches.
2. A new owner of a slot is given records of it only after all given records of the slot are acknowledged or returned.
   So records of one key are given in order, except records that are given again.
3. Every record that was read and is not acknowledged is held (not given yet), is given, or waits for the end of its
   delay. While a record is held, no later record of its slot is given; records of other slots are.
4. A batch is read in stretches of at most STRETCH_RECORDS records. The records of a stretch are given after the whole
   stretch was read. A new stretch begins only if fewer than HELD_MAX records are held and fewer than KNOWN_MAX are
   known (read and not acknowledged).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from gnomon.wire.kafka.primitives import Buffer

SLOTS = 1024
MIX = 0x9E3779B1
KEY_BYTES_MAX = 1024
"""The bytes of a key that are hashed, which bounds the time. Longer keys with equal beginnings share a slot."""
HELD_MAX = 10_000
STRETCH_RECORDS = 5_000
"""A batch is sent once for each stretch, and giving a stretch takes about 2 ms."""
KNOWN_MAX = 200_000
"""About 200 bytes each; the same number as Pulsar's `maxUnackedMessagesPerSubscription`."""


def slot_of(key: Buffer | None, offset: int) -> int:
    """The slot of a record; a record without a key may have any slot.

    Keys that differ only in their last digits have CRCs with many equal bits, so the CRC is mixed (Fibonacci hashing).
    """
    number = crc32(key[:KEY_BYTES_MAX]) if key is not None else offset
    return (number * MIX & 0xFFFFFFFF) * SLOTS >> 32


class Taker(Protocol):
    """A consumer, as slots are assigned to it."""

    @property
    def takes(self) -> bool:
        """Whether it may be given records now."""

    @property
    def channel(self) -> object:
        """Its connection."""


TakerT = TypeVar("TakerT", bound=Taker)


class KeySlots(Generic[TakerT]):
    """The slots of one subscription."""

    __slots__ = (
        "_consumers",
        "_given",
        "_held",
        "_held_count",
        "_holders",
        "_owners",
        "_shared_out",
        "_slots",
        "looks_to",
    )

    def __init__(self) -> None:
        self.looks_to = 0
        """The end of the stretch that is being read."""
        self._consumers: Sequence[TakerT] = ()
        self._shared_out = True
        """Whether the slots are assigned to the present consumers."""
        self._owners: list[TakerT] = []
        """By slot, the consumer that its records are to be given to."""
        self._holders: dict[int, TakerT] = {}
        """By slot, the consumer that has unacknowledged records of it."""
        self._given: dict[int, dict[int, None]] = {}
        """By slot, the offsets of these records."""
        self._slots: dict[int, int] = {}
        """By offset, the slots of the records that were read and are not acknowledged."""
        self._held: dict[int, list[int]] = {}
        """By slot, the offsets of held records, in order."""
        self._held_count = 0

    # --- consumers ----------------------------------------------------------------------------------------------

    def share_out(self, consumers: Sequence[TakerT]) -> None:
        """Assigns the slots to these consumers, at least one; the work is done when an owner is needed next."""
        self._consumers = consumers
        self._shared_out = False

    def _own(self) -> None:
        consumers, counts = self._consumers, dict.fromkeys(self._consumers, 0)
        if not self._owners:
            self._owners = [consumers[0]] * SLOTS
        most, rest = divmod(SLOTS, len(consumers))
        left: list[int] = []
        for slot, owner in enumerate(self._owners):
            count = counts.get(owner)
            if count is None or count >= most + (rest > 0):
                left.append(slot)
            else:
                counts[owner] = count + 1
                rest -= count == most
        takers = [consumer for consumer, count in counts.items() for _ in range(most - count)]
        takers += [consumer for consumer, count in counts.items() if count <= most][:rest]
        for slot, owner in zip(left, takers, strict=True):
            self._owners[slot] = owner
        self._shared_out = True

    def gone(self, consumer: TakerT, start: int) -> int:
        """A consumer was detached: its given records are held again, except those below `start`, which were removed.

        Returns:
            The number of its given records.
        """
        count = 0
        for slot in [slot for slot, holder in self._holders.items() if holder is consumer]:
            del self._holders[slot]
            offsets = sorted(self._given.pop(slot))
            gone = bisect_left(offsets, start)
            for offset in offsets[:gone]:
                del self._slots[offset]
            count += len(offsets)
            self._held_count += len(offsets) - gone
            if gone < len(offsets):
                self._held[slot] = sorted(offsets[gone:] + self._held.get(slot, []))  # merges two ordered lists
        return count

    # --- acknowledgements ---------------------------------------------------------------------------------------

    def taken_back(self, consumer: TakerT, first: int, end: int) -> list[int]:
        """Takes back the records of [first, end) that a consumer was given.

        Returns:
            Their offsets, in order; `hold` is called with them after their delay.
        """
        taken = []
        for offset in self._known(first, end):
            slot = self._slots[offset]
            if self._holders.get(slot) is consumer and offset in self._given[slot]:
                self._ungive(slot, offset)
                taken.append(offset)
        return sorted(taken)

    def acked(self, first: int, end: int) -> int:
        """Forgets acknowledged records; returns how many of them were read."""
        known = self._known(first, end)
        for offset in known:
            slot = self._slots.pop(offset)
            given = self._given.get(slot)
            if given is not None and offset in given:
                self._ungive(slot, offset)
            else:
                self._unhold(slot, offset)
        return len(known)

    # --- records ------------------------------------------------------------------------------------------------

    def learned(self, first: int, slots: Sequence[int]) -> None:
        """Holds records that were read: the slots of the records from `first` on."""
        all_slots, all_held = self._slots, self._held
        for offset, slot in enumerate(slots, first):
            all_slots[offset] = slot
            held = all_held.get(slot)
            if held is None:
                all_held[slot] = [offset]
            else:
                held.append(offset)
        self._held_count += len(slots)

    def hold(self, offsets: Iterable[int], start: int) -> None:
        """Holds records after their delay, except those that were acknowledged or are below `start`."""
        for offset in offsets:
            slot = self._slots.get(offset)
            if slot is None:
                continue
            if offset < start:
                del self._slots[offset]
                continue
            insort(self._held.setdefault(slot, []), offset)
            self._held_count += 1

    def trimmed(self, start: int) -> None:
        """Forgets held records below `start`, which were removed; given records stay until they are acknowledged."""
        for slot, held in list(self._held.items()):
            gone = held[: bisect_left(held, start)]
            del held[: len(gone)]
            self._held_count -= len(gone)
            for offset in gone:
                del self._slots[offset]
            if not held:
                del self._held[slot]

    def stretch(self, position: int, end: int) -> int:
        """The end of the stretch that is read from `position` on, in a batch that ends at `end`."""
        if self.looks_to <= position:
            self.looks_to = min(end, position + STRETCH_RECORDS)
        return self.looks_to

    def wanted(self, position: int) -> int | None:
        """The first offset that can be given or read now; None if there is none."""
        if position < self.looks_to:
            return position
        first = min((held[0] for slot, held in self._held.items() if self.taker(slot) is not None), default=None)
        if first is not None:
            return first
        return position if self._held_count < HELD_MAX and len(self._slots) < KNOWN_MAX else None

    def give(self, base: int, end: int, channels_max: int) -> dict[TakerT, list[int]]:
        """Gives held records of the batch [base, end), at most STRETCH_RECORDS, over at most `channels_max` channels.

        Returns:
            The offsets that each consumer gets.
        """
        given: dict[TakerT, list[int]] = {}
        channels: dict[object, None] = {}
        left = STRETCH_RECORDS
        for slot, held in list(self._held.items()):
            taker = self.taker(slot) if base <= held[0] < end else None
            if taker is None or (len(channels) == channels_max and taker.channel not in channels):
                continue
            channels[taker.channel] = None
            offsets = held[: min(left, bisect_left(held, end))]
            del held[: len(offsets)]
            if not held:
                del self._held[slot]
            self._holders[slot] = taker
            self._given.setdefault(slot, {}).update(dict.fromkeys(offsets))
            given.setdefault(taker, []).extend(offsets)
            left -= len(offsets)
            if not left:
                break
        self._held_count -= STRETCH_RECORDS - left
        return given

    def pieces_of(self, first: int, end: int, records_max: int) -> list[tuple[int, int]]:
        """Splits [first, end) into runs with at most `records_max` records each that were read."""
        if end - first <= records_max:
            return [(first, end)]
        return list(pairwise((first, *sorted(self._known(first, end))[records_max::records_max], end)))

    def _known(self, first: int, end: int) -> list[int]:
        """The offsets of [first, end) that were read and are not acknowledged."""
        if end - first > len(self._slots):
            return [offset for offset in self._slots if first <= offset < end]
        return [offset for offset in range(first, end) if offset in self._slots]

    def taker(self, slot: int) -> TakerT | None:
        """The consumer that may be given records of a slot now; None if there is none (invariant 2)."""
        if not self._shared_out:
            self._own()
        owner = self._owners[slot]
        return owner if owner.takes and self._holders.get(slot, owner) is owner else None

    def _ungive(self, slot: int, offset: int) -> None:
        given = self._given[slot]
        del given[offset]
        if not given:
            del self._given[slot], self._holders[slot]

    def _unhold(self, slot: int, offset: int) -> None:
        held = self._held.get(slot)
        if held is None:
            return
        at = bisect_left(held, offset)
        if at < len(held) and held[at] == offset:
            del held[at]
            self._held_count -= 1
            if not held:
                del self._held[slot]
