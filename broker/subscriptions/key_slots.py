"""Which consumer of a key_shared subscription gets which record. Pure.

1. A key belongs to one of SLOTS slots, and a slot to one consumer; when consumers come or go few slots change hands.
2. A slot changes hands once all records of it that were given are acknowledged: of one key no record overtakes another,
   but for those that are given again.
3. A record that cannot be given now is held, and all later ones of its slot behind it; the other slots go on, up to
   HELD_MAX records held. Nothing more is read on where KNOWN_MAX records are held or not acknowledged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from gnomon.broker.subscriptions.runs import Runs

if TYPE_CHECKING:
    from gnomon.broker.subscriptions.subscription import Consumer

SLOTS = 1024
MIX = 0x9E3779B1
HELD_MAX = 10_000
KNOWN_MAX = 200_000
"""Some 140 bytes each; Pulsar's brokers stop at as many (`maxUnackedMessagesPerSubscription`)."""


def slot_of(key: bytes | None, offset: int) -> int:
    """The slot of a record; where there is no key any will do.

    CRCs of keys that differ in their last digits alone are alike in whole bits, so they are mixed (Fibonacci hashing).
    """
    number = crc32(key) if key is not None else offset
    return (number * MIX & 0xFFFFFFFF) * SLOTS >> 32


class KeySlots:
    """The slots of one subscription."""

    __slots__ = ("_given", "_held", "_held_count", "_holders", "_owners", "_slots")

    def __init__(self) -> None:
        self._owners: list[Consumer] = []
        self._holders: dict[int, Consumer] = {}
        """Who has records of a slot that are not acknowledged."""
        self._given: dict[int, int] = {}
        """How many those are, by slot."""
        self._slots: dict[int, int] = {}
        """The slots of records that were read and are not acknowledged, by offset."""
        self._held: dict[int, list[int]] = {}
        """Offsets that wait to be given, by slot, in order."""
        self._held_count = 0

    def share_out(self, consumers: Sequence[Consumer]) -> None:
        """Gives every slot an owner, after a consumer came or went; there is at least one."""
        counts = dict.fromkeys(consumers, 0)
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
        for slot in left:
            owner = min(counts, key=counts.__getitem__)
            counts[owner] += 1
            self._owners[slot] = owner

    def gone(self, consumer: Consumer) -> None:
        """A consumer has gone: what it was given is given again by the caller."""
        for slot in [slot for slot, holder in self._holders.items() if holder is consumer]:
            del self._holders[slot], self._given[slot]

    def taken_back(self, first: int, end: int) -> None:
        """Records that were given are not with their consumer any more: acknowledged, or to be given again."""
        for offset in self._known(first, end):
            slot = self._slots[offset]
            if slot in self._given:
                self._given[slot] -= 1
                if not self._given[slot]:
                    del self._given[slot], self._holders[slot]

    def acked(self, first: int, end: int) -> None:
        """Nobody wants these records any more."""
        for offset in self._known(first, end):
            self._unhold(offset, self._slots.pop(offset))

    def trimmed(self, start: int) -> None:
        """Records below `start` are gone: nobody gets those that wait; those that were given hold their slots."""
        for slot, held in list(self._held.items()):
            gone = held[: bisect_left(held, start)]
            del held[: len(gone)]
            self._held_count -= len(gone)
            for offset in gone:
                del self._slots[offset]
            if not held:
                del self._held[slot]

    def hold(self, first: int, end: int) -> None:
        """Records that were read before wait to be given."""
        for offset in self._known(first, end):
            held = self._held.setdefault(self._slots[offset], [])
            at = bisect_left(held, offset)
            if at == len(held) or held[at] != offset:
                held.insert(at, offset)
                self._held_count += 1

    def held_in(self, first: int, end: int) -> list[tuple[int, int]]:
        """The records held of a batch, as runs."""
        runs = Runs()
        for held in self._held.values():
            for offset in held[bisect_left(held, first) : bisect_left(held, end)]:
                runs.add(offset, offset + 1)
        return list(runs)

    def wanted(self, position: int) -> int | None:
        """The first offset that can be given now, or is not known yet; None where all that is held has to wait."""
        first = min((held[0] for slot, held in self._held.items() if self._taker(slot) is not None), default=None)
        if first is not None:
            return first
        return position if self._held_count < HELD_MAX and len(self._slots) < KNOWN_MAX else None

    def give(self, offset: int, slot: int) -> Consumer | None:
        """Who gets a record that is wanted; None holds it. To be asked in the order of offsets."""
        self._slots[offset] = slot
        held = self._held.get(slot)
        taker = self._taker(slot) if held is None or held[0] == offset else None
        if taker is None:
            self.hold(offset, offset + 1)
            return None
        self._unhold(offset, slot)
        self._holders[slot] = taker
        self._given[slot] = self._given.get(slot, 0) + 1
        return taker

    def _known(self, first: int, end: int) -> list[int]:
        """The records of a run that were read."""
        if end - first > len(self._slots):
            return [offset for offset in self._slots if first <= offset < end]
        return [offset for offset in range(first, end) if offset in self._slots]

    def _taker(self, slot: int) -> Consumer | None:
        owner = self._owners[slot]
        return owner if owner.takes and self._holders.get(slot, owner) is owner else None

    def _unhold(self, offset: int, slot: int) -> None:
        held = self._held.get(slot)
        if held is None:
            return
        at = bisect_left(held, offset)
        if at < len(held) and held[at] == offset:
            del held[at]
            self._held_count -= 1
            if not held:
                del self._held[slot]
