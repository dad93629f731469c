"""The slots of keys of one subscription; numbers cite the invariants of `key_slots`."""

from __future__ import annotations

from itertools import pairwise

from dispatcher_bench import OpenChannel

from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.key_slots import SLOTS, KeySlots, slot_of
from gnomon.broker.subscriptions.subscription import AttachedConsumer, Subscription
from gnomon.log.entry import Offset


def test_slots_are_shared_out_evenly_and_few_change_hands() -> None:  # 1
    slots, subscription = KeySlots(), Subscription("k", Cursor(Offset(0)))
    consumers = [AttachedConsumer(OpenChannel(), number, "", 1, subscription) for number in range(5)]
    owners = []
    for count in (1, 2, 3, 4, 5, 4, 3):
        slots.share_out(consumers[:count])
        slots.learned(0, range(SLOTS))
        given = slots.give(0, SLOTS, 100)
        who = {offset: consumer for consumer, offsets in given.items() for offset in offsets}
        owners.append([who[offset] for offset in range(SLOTS)])
        slots.acked(0, SLOTS)
    for now in owners:
        counts = [now.count(consumer) for consumer in set(now)]
        assert max(counts) - min(counts) <= 1
    moved = [sum(a is not b for a, b in zip(before, now, strict=True)) for before, now in pairwise(owners)]
    assert max(moved) <= SLOTS / 2
    assert moved[3] <= SLOTS / 5 + 1
    assert slot_of(b"key", 1) == slot_of(b"key", 2)


def test_keys_that_are_alike_are_spread() -> None:
    for prefix in (b"", b"flight ", b"customer-000"):
        for count in (10, 100, 1000):
            slots = [slot_of(prefix + b"%d" % number, 0) for number in range(count)]
            upper = sum(slot >= SLOTS / 2 for slot in slots)
            assert 0.25 * count <= upper <= 0.75 * count, (prefix, count)
