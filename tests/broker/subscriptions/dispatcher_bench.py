"""A dispatcher of a log whose batches have ten records each, and a channel, for tests of deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack

from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.key_slots import slot_of
from gnomon.broker.subscriptions.subscription import AttachedConsumer, SubscriptionType
from gnomon.log.entry import Offset

BATCH = 10
EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED


class OpenChannel:
    """A channel that takes deliveries until a test blocks it."""

    ready = True


class Bench:
    """A dispatcher of a log whose batches have ten records each."""

    def __init__(self, end: int = 0) -> None:
        self.dispatcher = Dispatcher(Offset(end))
        self.frames: list[tuple[OpenChannel, int, int, list[tuple[int, ...]]]] = []
        """Channel, offset of the batch, and the numbers and slots of its parcels."""
        self.reads = 0
        self.keys: Sequence[bytes | None] = [b"%d" % each for each in range(BATCH)]
        self._numbers = 0

    def subscribe(
        self,
        name: str,
        kind: SubscriptionType = EXCLUSIVE,
        *,
        channel: OpenChannel | None = None,
        permits: int = 1000,
        at: int = 0,
        client: str | None = None,
    ) -> AttachedConsumer:
        known = self.dispatcher.subscriptions
        subscription = known.get(name) or self.dispatcher.add(name, Cursor(Offset(at)))
        self._numbers += 1
        client = client or str(self._numbers)
        self.dispatcher.check(subscription, kind, client)
        return self.dispatcher.attach(subscription, kind, channel or OpenChannel(), self._numbers, client, permits)

    def write(self, batches: int = 1) -> None:
        self.dispatcher.advanced(Offset(self.dispatcher.end + batches * BATCH))

    def look(self, first: int, count: int) -> list[int]:
        """The slots of records by their keys."""
        return [slot_of(self.keys[offset % BATCH], offset) for offset in range(first, first + count)]

    def pump(self) -> dict[int, list[int]]:
        """Gives all records that can be given; returns their offsets by the number of the consumer."""
        given: dict[int, list[int]] = {}
        while (wanted := self.dispatcher.wanted()) is not None:
            self.reads += 1
            base = wanted // BATCH * BATCH
            parcels = self.dispatcher.give(wanted, Offset(base), Offset(base + BATCH), self.look)
            for channel, parts in parcels.items():
                named = [unpack(f"<{len(numbers) // 4}I", numbers) for numbers, _ in parts]
                self.frames.append((channel, base, sum(map(len, named)), named))
                for numbers, (_, slots) in zip(named, parts, strict=True):
                    places = range(BATCH) if slots is None else unpack(f"<{len(slots) // 4}I", slots)
                    for number in numbers:
                        given.setdefault(number, []).extend(base + place for place in places)
        return given
