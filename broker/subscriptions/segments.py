"""Segments of subscriptions: ledgers that hold one subscription's positions, with the record that names them.

1. A segment and the record that names it appear, change and go in one transaction: no segment is left over.
2. Who goes on with a segment has claimed its ledger: what an owner of before appends from then on is refused.
3. A segment is given up only by who owns it: the session of its ledger is compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import trio

from gnomon.bookie.errors import LedgerError, LedgerExists, LedgerFenced
from gnomon.bookie.ledger import Bookies, Ledger, LedgerId, Quorum, claim_ledger, create_ledger
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.broker.subscriptions.record import SubscriberRecord, decode_commit
from gnomon.broker.subscriptions.record_changes import Held, meet_nobody, without_segment
from gnomon.broker.subscriptions.records import SubscriberRecords
from gnomon.broker.subscriptions.store import (
    Position,
    SubscriberChanged,
    SubscriptionsError,
    UnreadablePosition,
    raise_refused,
)
from gnomon.metadata.client import Compare, Delete, Field, KeyValue, MetadataError, Put, Revision

AT_ONCE = 64
"""Segments claimed, created or deleted at a time."""
FIRST_SEGMENT = 1


class Segment:
    """A segment of a subscription that this process has claimed, and where that stands."""

    __slots__ = ("ledger", "number", "position")

    def __init__(self, ledger: Ledger, number: int, position: Position) -> None:
        self.ledger = ledger
        self.number = number
        self.position = position


class Segments:
    """Creates, claims, rolls and gives up segments; those of one partition."""

    def __init__(self, records: SubscriberRecords, bookies: Bookies, quorum: Quorum) -> None:
        self._records = records
        self._metadata = records.metadata
        self._bookies = bookies
        self._quorum = quorum

    async def claim(self, subscriber: str) -> Segment | None:
        """Takes over the segment that the record held names; None where the record names none by now.

        None also where somebody has deleted the ledger: then the record says as much as is known.

        Raises:
            SubscriberChanged: another took it at the same time.
            LedgerError: its last entry could not be found.
        """
        while (held := self._records.held.get(subscriber)) is not None and held.segment_id is not None:
            number = held.segment_id
            stored = await self._metadata.get(ledger_key(self._records.segment_name(subscriber, number)))
            if stored is not None:
                segment = await self._claim(subscriber, held, stored)
                if segment is not None:
                    return segment
            elif await self._records.read(subscriber) == held:
                return None
        return None

    async def _claim(self, subscriber: str, held: Held, stored: KeyValue) -> Segment | None:
        compare = (self._records.unchanged(subscriber), *self._records.claimant)
        try:
            ledger = await claim_ledger(self._metadata, self._bookies, stored, compare=compare, followed=False)
        except LedgerFenced as error:
            if await self._records.read(subscriber) != held:
                return None
            raise SubscriberChanged(subscriber) from error
        position = held.position
        last = ledger.last_add_confirmed
        if last >= ledger.start_entry:
            (payload,) = await ledger.read(last, last)
            try:
                position = decode_commit(payload)
            except (ValueError, TypeError) as error:
                raise UnreadablePosition(f"entry {last} of ledger {ledger.name}", error) from error
        assert held.segment_id is not None
        return Segment(ledger, held.segment_id, position)

    async def begin(self, subscriber: str, position: Position, before: Segment | None, resets: int) -> Segment:
        """Begins a subscription's next segment in place of the one `before`; the record says where it stands.

        Args:
            resets: see the record.

        Raises:
            SubscriberChanged: the subscription or its segment was changed by another; nothing is changed.
            LedgerError: there are too few bookies.
        """
        number = FIRST_SEGMENT if before is None else before.number + 1
        record = SubscriberRecord(subscriber, position, number, resets)
        held = self._records.held.get(subscriber)
        compare = [self._records.unchanged(subscriber), *self._records.claimant]
        also: list[Put | Delete] = [
            Put(self._records.key(subscriber), record.encode()),
            *self._records.told_to_retention({subscriber: record}),
        ]
        if before is not None:
            compare.append(await self._owned(subscriber, before))
            also.append(Delete(ledger_key(before.ledger.name)))
        try:
            ledger = await create_ledger(
                self._metadata,
                self._bookies,
                self._records.segment_name(subscriber, number),
                quorum=self._quorum,
                compare=compare,
                also=also,
                followed=False,
            )
        except LedgerExists as error:
            raise SubscriberChanged(subscriber) from error
        written = Revision(ledger.id)  # the ledger's first revision is that of the transaction
        created = written if held is None else held.created
        self._records.hold(subscriber, Held(position, number, resets, created, written))
        if before is not None:
            await before.ledger.close()
        return Segment(ledger, number, position)

    async def finish(self, subscriber: str, segment: Segment) -> None:
        """Gives up a segment: its position goes into the record.

        Raises:
            SubscriberChanged: the subscription or its segment was changed by another; nothing is changed.
        """
        await segment.ledger.close()
        record = SubscriberRecord(subscriber, segment.position, None, self._records.held[subscriber].resets)
        compare = (self._records.unchanged(subscriber), await self._owned(subscriber, segment))
        result = await self._metadata.txn(
            (*compare, *self._records.claimant),
            (Put(self._records.key(subscriber), record.encode()), Delete(ledger_key(segment.ledger.name))),
        )
        if not result.succeeded:
            raise SubscriberChanged(subscriber)
        item = result.results[0]
        assert isinstance(item, KeyValue), f"a transaction did not say what it put for subscription {subscriber!r}"
        self._records.hold(subscriber, Held.of(item))

    async def settle(self, subscriber: str) -> None:
        """Takes over a segment, and gives it up.

        Raises:
            SubscriberChanged, LedgerError: as `claim` and `finish`.
        """
        segment = await self.claim(subscriber)
        if segment is not None:
            await self.finish(subscriber, segment)
        elif subscriber in self._records.held:
            raise_refused(await self._records.change([subscriber], without_segment, meet_nobody))

    async def _owned(self, subscriber: str, segment: Segment) -> Compare:
        """What holds as long as a segment is this process's: beside its writer, an auditor may change the record."""
        ledger = segment.ledger
        key = ledger_key(ledger.name)
        stored = await self._metadata.get(key)
        if stored is None or LedgerId(stored.create_revision) != ledger.id:
            raise SubscriberChanged(subscriber)
        if decode_record(stored.value).session != ledger.session:
            raise SubscriberChanged(subscriber)
        return Compare(key, Field.MOD_REVISION, stored.mod_revision)


async def for_each(subscribers: Collection[str], work: Callable[[str], Awaitable[None]]) -> list[str]:
    """Does `work` for many subscriptions, AT_ONCE of them at a time.

    Returns:
        Those of which it raised SubscriberChanged.

    Raises:
        MetadataError, LedgerError, SubscriptionsError: the first that it raised; nothing was begun after it.
    """
    refused: list[str] = []
    if not subscribers:
        return refused
    errors: list[MetadataError | LedgerError | SubscriptionsError] = []
    waiting = iter(subscribers)

    async def worker() -> None:
        for subscriber in waiting:
            if errors:
                return
            try:
                await work(subscriber)
            except SubscriberChanged:
                refused.append(subscriber)
            except (MetadataError, LedgerError, SubscriptionsError) as error:
                errors.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(min(AT_ONCE, len(subscribers))):
            nursery.start_soon(worker)
    if errors:
        raise errors[0]
    return refused
