"""Segments of subscriptions: each is a ledger with one subscription's positions, named by the subscription's record.

1. A segment and the record that names it are created, changed and deleted in one transaction: no segment is left over.
2. A new owner of a segment claims its ledger: from then on appends of earlier owners are refused.
3. Only the owner of a segment replaces it or moves its position to the record: the session of the ledger is compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import trio

from gnomon.bookie.errors import LedgerError, LedgerExists, LedgerFenced, NoSuchLedger
from gnomon.bookie.ledgers.catalog import Bookies, Ledger, LedgerId, Quorum, adopt_ledger, claim_ledger, create_ledger
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.broker.subscriptions.positions.record import SubscriberRecord, decode_commit
from gnomon.broker.subscriptions.positions.record_changes import Held, refuse_conflict, without_segment
from gnomon.broker.subscriptions.positions.records import SubscriberRecords
from gnomon.broker.subscriptions.positions.store import Position, SubscriberChanged, UnreadablePosition, raise_refused
from gnomon.log.subscription_keys import SubscriptionsError
from gnomon.metadata.client import Compare, Delete, KeyField, KeyValue, Metadata, MetadataError, Put, Revision

AT_ONCE = 64
"""Limit of the segments that are claimed, created or deleted concurrently."""
FIRST_SEGMENT = 1


class PositionSegment:
    """A segment of a subscription that this process has claimed, with its last position."""

    __slots__ = ("ledger", "number", "position")

    def __init__(self, ledger: Ledger, number: int, position: Position) -> None:
        self.ledger = ledger
        self.number = number
        self.position = position


class Segments:
    """Creates, claims, rolls and gives up the segments of one partition."""

    def __init__(self, records: SubscriberRecords, bookies: Bookies, quorum: Quorum) -> None:
        self._records = records
        self._metadata = records.metadata
        self._bookies = bookies
        self._quorum = quorum

    async def claim(self, subscriber: str) -> PositionSegment | None:
        """Takes over the segment that the held record names; None if the record names none any more.

        None also if the segment's ledger was deleted: then the record has the last known position.

        Raises:
            SubscriberChanged: another process claimed the segment at the same time.
            LedgerError: the last entry of the segment could not be found.
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

    async def _claim(self, subscriber: str, held: Held, stored: KeyValue) -> PositionSegment | None:
        compare = (self._records.unchanged(subscriber), *self._records.claimant)
        try:
            ledger = await claim_ledger(self._metadata, self._bookies, stored, compare=compare, followed=False)
        except (LedgerFenced, NoSuchLedger) as error:
            if await self._records.read(subscriber) != held:
                return None
            raise SubscriberChanged(subscriber) from error
        position = held.position
        last = ledger.last_add_confirmed
        if last >= ledger.start_entry:
            (payload,) = await ledger.read(last, last)
            position = _decoded(payload, f"entry {last} of ledger {ledger.name}")
        assert held.segment_id is not None
        return PositionSegment(ledger, held.segment_id, position)

    async def begin(
        self, subscriber: str, position: Position, before: PositionSegment | None, resets: int
    ) -> PositionSegment:
        """Begins a subscription's next segment in place of `before`, and writes `position` to the record.

        Args:
            resets: see `SubscriberRecord`.

        Raises:
            SubscriberChanged: another process changed the subscription or its segment; this call changed nothing.
            LedgerError: there are too few bookies.
        """
        number = FIRST_SEGMENT if before is None else before.number + 1
        record = SubscriberRecord(subscriber, position, number, resets)
        held = self._records.held.get(subscriber)
        compare = [self._records.unchanged(subscriber), *self._records.claimant]
        also: list[Put | Delete] = [
            Put(self._records.key(subscriber), record.encode()),
            *self._records.hold_puts({subscriber: record}),
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
        return PositionSegment(ledger, number, position)

    async def finish(self, subscriber: str, segment: PositionSegment) -> None:
        """Gives up a segment: writes its position to the record, and deletes its ledger.

        Raises:
            SubscriberChanged: another process changed the subscription or its segment; this call changed nothing.
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
        assert isinstance(item, KeyValue), (
            f"a transaction did not return the item that it put for subscription {subscriber!r}"
        )
        self._records.hold(subscriber, Held.of(item))

    async def settle(self, subscriber: str) -> None:
        """Takes over the segment of a subscription, and gives it up.

        Raises:
            SubscriberChanged, LedgerError: as for `claim` and `finish`.
        """
        segment = await self.claim(subscriber)
        if segment is not None:
            await self.finish(subscriber, segment)
        elif subscriber in self._records.held:
            raise_refused(await self._records.change([subscriber], without_segment, refuse_conflict))

    async def _owned(self, subscriber: str, segment: PositionSegment) -> Compare:
        """The comparison that holds as long as this process owns a segment.

        It reads the ledger's record again first, because the auditor may change that record beside the writer.
        """
        ledger = segment.ledger
        key = ledger_key(ledger.name)
        stored = await self._metadata.get(key)
        if stored is None or LedgerId(stored.create_revision) != ledger.id:
            raise SubscriberChanged(subscriber)
        if decode_record(stored.value).session != ledger.session:
            raise SubscriberChanged(subscriber)
        return Compare(key, KeyField.MOD_REVISION, stored.mod_revision)


async def read_segment(metadata: Metadata, bookies: Bookies, key: str, segment_id: int) -> Position | None:
    """Reads the last position in a subscription's segment; the owner is not fenced, and may append meanwhile.

    Args:
        key: the key of the subscription's record.

    Returns:
        None if there is no such segment, or it has no entry: then the record has the position.

    Raises:
        UnreadablePosition: the last entry is not a position.
        LedgerError: the last entry cannot be read now.
        MetadataError: the ledger's record cannot be read.
    """
    stored = await metadata.get(ledger_key(f"{key}/{segment_id}"))
    if stored is None:
        return None
    ledger = adopt_ledger(metadata, bookies, stored)
    payload = await ledger.read_last()
    return None if payload is None else _decoded(payload, f"the last entry of ledger {ledger.name}")


def _decoded(payload: bytes, where: str) -> Position:
    try:
        return decode_commit(payload)
    except (ValueError, TypeError) as error:
        raise UnreadablePosition(where, error) from error


async def for_each(subscribers: Collection[str], work: Callable[[str], Awaitable[None]]) -> list[str]:
    """Does `work` for many subscriptions, AT_ONCE of them concurrently.

    Returns:
        The subscriptions for which `work` raised SubscriberChanged.

    Raises:
        MetadataError, LedgerError, SubscriptionsError: the first error of `work`; no work was begun after it.
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
