"""The metadata records of one partition's subscriptions: read in one range, changed in transactions of many.

1. A record is written only if its revision is still the one that was read: no write of another process is overwritten
   unseen.
2. After another process changed a record, the record is read again, and the change is judged by its new value.
3. Nothing is written once the comparisons of `claimant` fail.
4. The creation or reset of a subscription writes `holds` and `reader` in the same transaction (`hold` invariant 1). The
   deletion of a subscription writes `holds` too (`growth` invariant 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

import trio

from gnomon.bookie.record import ledger_key
from gnomon.broker.subscriptions.positions.record import RECORDS_PER_TURN, SubscriberRecord
from gnomon.broker.subscriptions.positions.record_changes import Conflict, Held, Judge, Resolve
from gnomon.broker.subscriptions.positions.store import StoreFenced
from gnomon.log.subscription_keys import subscriber_in_key, subscriber_of_key
from gnomon.metadata.client import Compare, Delete, DeletePrefix, KeyField, KeyValue, Metadata, Put

PUTS_MAX = 120
"""Records written in one transaction: etcd allows 128 comparisons, and some of them are the claimant's."""
PUTS_BYTES_MAX = 1 << 19
"""Bytes of these records, except that one larger record is written alone.

etcd allows 1.5 MiB; a record with many ranges has some 10 KiB.
"""
READS_MAX = 8
"""Up to this many records are read individually; beyond it the whole prefix is read."""


class SubscriberRecords:
    """The records below one prefix."""

    def __init__(
        self,
        metadata: Metadata,
        prefix: str,
        holds: str,
        claimant: Sequence[Compare] = (),
        reader: Sequence[Put] = (),
    ) -> None:
        """The records whose keys begin with `prefix`.

        Args:
            holds: the `hold_key` of the topic that stores the log records, which is the source for a shadow.
            claimant: comparisons that every write includes, such as the topic's life.
            reader: the put of the `reader_key`, if the records are those of a topic's subscriptions.
        """
        self.metadata = metadata
        self.prefix = prefix
        self._holds = holds
        self._reader = tuple(reader)
        self.claimant = tuple(claimant)
        self.held: dict[str, Held] = {}
        self.refused: set[str] = set()
        """Subscriptions that another process changed, until they are read explicitly: see `refuse`."""

    def key(self, subscriber: str) -> str:
        """The metadata key of a subscription.

        Raises:
            InvalidSubscriber: no subscription can have this name.
        """
        return self.prefix + subscriber_in_key(subscriber)

    def segment_name(self, subscriber: str, segment_id: int) -> str:
        """The name of a segment's ledger."""
        return f"{self.key(subscriber)}/{segment_id}"

    async def read_all(self) -> None:
        """Reads and holds every record, in order of name; yields to other tasks between many records."""
        found = await self.metadata.range(self.prefix)
        alike: dict[Held, Held] = {}
        records: dict[str, Held] = {}
        for count, item in enumerate(found.items):
            if count % RECORDS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            held = Held.of(item)
            records[subscriber_of_key(item.key)] = alike.setdefault(held, held)
        self.held = records
        self.refused.clear()

    async def read(self, subscriber: str) -> Held | None:
        """Reads one record and holds it."""
        item = await self.metadata.get(self.key(subscriber))
        return self.hold(subscriber, None if item is None else Held.of(item))

    async def read_missing(self, subscribers: Collection[str]) -> None:
        """Reads and holds the existing records of these subscriptions that are neither held nor refused."""
        missing = [name for name in subscribers if name not in self.held and name not in self.refused]
        if missing:
            self.held.update(await self._read(missing))

    async def _read(self, subscribers: Collection[str]) -> dict[str, Held]:
        """The existing records of these subscriptions."""
        keys = {self.key(name): name for name in subscribers}
        if len(keys) > READS_MAX:
            found = await self.metadata.range(self.prefix)
            return {keys[item.key]: Held.of(item) for item in found.items if item.key in keys}
        items = [await self.metadata.get(key) for key in keys]
        return {keys[item.key]: Held.of(item) for item in items if item is not None}

    def hold(self, subscriber: str, held: Held | None) -> Held | None:
        """Holds a record that was read; None forgets it."""
        if held is None:
            self.held.pop(subscriber, None)
        else:
            self.held[subscriber] = held
        return held

    def refuse(self, subscriber: str) -> None:
        """Forgets a record that another process changed, and refuses changes until its position is read explicitly.

        Otherwise changes that this store's user still has to store would be judged by a record unknown to that user.
        """
        self.hold(subscriber, None)
        self.refused.add(subscriber)

    def unchanged(self, subscriber: str) -> Compare:
        """The comparison that the stored record is the held one."""
        held = self.held.get(subscriber)
        return Compare(self.key(subscriber), KeyField.MOD_REVISION, 0 if held is None else held.modified)

    def hold_puts(self, changes: Mapping[str, SubscriberRecord]) -> tuple[Put, ...]:
        """The puts that a transaction with these records must include, for retention: see invariant 4."""
        held = self.held
        if all(name in held and held[name].resets == record.resets for name, record in changes.items()):
            return ()
        return (Put(self._holds, b""), *self._reader)

    async def change(self, subscribers: Iterable[str], judge: Judge, resolve: Resolve) -> tuple[str, ...]:
        """Puts the record that `judge` returns for each subscription, in transactions of at most PUTS_MAX records.

        Returns:
            The subscriptions that `resolve` refused, now or earlier; see `refuse`.

        Raises:
            StoreFenced: the claimant's comparisons fail.
            InvalidSubscriber: a name is invalid; the records before it may be stored.
        """
        names = iter(subscribers)
        refused: list[str] = []
        while group := list(islice(names, PUTS_MAX)):
            if self.refused:
                refused += [name for name in group if name in self.refused]
                group = [name for name in group if name not in self.refused]
            refused += await self._change(group, judge, resolve)
        return tuple(refused)

    async def _change(self, group: list[str], judge: Judge, resolve: Resolve) -> list[str]:
        refused: list[str] = []
        while group:
            puts, values, rest = self._judged(group, judge)
            if not puts:
                break
            compare = [self.unchanged(name) for name in puts]
            then = [Put(same.key, value) for same, value in zip(compare, values, strict=True)]
            result = await self.metadata.txn((*compare, *self.claimant), (*then, *self.hold_puts(puts)))
            if result.succeeded:
                self._hold_written(puts, result.results)
                group = rest
            else:
                group = await self._resolve_conflicts(puts, resolve, refused) + rest
        return refused

    def _hold_written(self, puts: Mapping[str, SubscriberRecord], results: Iterable[object]) -> None:
        before: Held | None = None
        for (name, record), item in zip(puts.items(), results, strict=False):
            assert isinstance(item, KeyValue), f"a transaction did not return the item that it put for {name!r}"
            held = Held(*record[1:], item.create_revision, item.mod_revision)
            if held != before:  # equal records share one object; most whose consumers share a connection are equal
                before = held
            self.held[name] = before

    def _judged(self, group: list[str], judge: Judge) -> tuple[dict[str, SubscriberRecord], list[bytes], list[str]]:
        """The records to put of the first names that fit in one transaction, their values, and the other names."""
        puts: dict[str, SubscriberRecord] = {}
        values: list[bytes] = []
        size = 0
        for number, name in enumerate(group):
            record = judge(name, self.held.get(name))
            if record is None:
                continue
            if name not in self.held:
                self.key(name)  # raises if the name is invalid
            value = record.encode()
            size += len(value)
            if size > PUTS_BYTES_MAX and puts:
                return puts, values, group[number:]
            puts[name] = record
            values.append(value)
        return puts, values, []

    async def _resolve_conflicts(
        self, puts: dict[str, SubscriberRecord], resolve: Resolve, refused: list[str]
    ) -> list[str]:
        """Reads the records that other processes changed, adds to `refused`, and returns the names to judge again."""
        found = await self._read(puts)
        again, changed = [], False
        for name, record in puts.items():
            before, after = self.held.get(name), found.get(name)
            if (before and before.modified) == (after and after.modified):
                again.append(name)
                continue
            changed = True
            conflict = resolve(record, before, after)
            if conflict is Conflict.JUDGE_AGAIN:
                self.hold(name, after)
                again.append(name)
            else:
                self.refuse(name)
                if conflict is Conflict.REFUSED:
                    refused.append(name)
        if not changed:
            raise self.fenced()
        return again

    def fenced(self) -> StoreFenced:
        """The error of a transaction in which only the claimant's comparisons can have failed."""
        return StoreFenced(
            f"positions under {self.prefix} were not stored: the partition has another owner, or its topic was"
            " deleted; look up its leader again"
        )

    async def delete(self, subscriber: str) -> None:
        """Deletes a record and its segment's ledger, whatever their contents; does nothing without a record.

        Raises:
            StoreFenced: as `change`.
        """
        key = self.key(subscriber)
        item = await self.metadata.get(key)
        while item is not None:
            compare = (Compare(key, KeyField.MOD_REVISION, item.mod_revision), *self.claimant)
            gone = (Delete(key), DeletePrefix(f"{ledger_key(key)}/"), Put(self._holds, b""))
            if (await self.metadata.txn(compare, gone)).succeeded:
                break
            before, item = item, await self.metadata.get(key)
            if before == item:
                raise self.fenced()
        self.hold(subscriber, None)
        self.refused.discard(subscriber)
