"""The records of one partition's subscriptions in the metadata: read in one range, changed in groups, each compared.

1. A record is written only if it is still the one that was read (its revision): nobody's write is lost unseen.
2. Where one was changed by another, it is read again, and the change is judged by what stands there.
3. Nothing is written where what `claimant` compares does not hold any more.
4. What makes a subscription, or takes one back, writes `holds` in the same transaction (`hold` invariant 1); what
   deletes one, too (`growth` invariant 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

import trio

from gnomon.bookie.record import ledger_key
from gnomon.broker.subscriptions.record import RECORDS_PER_TURN, SubscriberRecord
from gnomon.broker.subscriptions.record_changes import Conflict, Held, Judge, Meet
from gnomon.broker.subscriptions.store import StoreFenced, subscriber_in_key, subscriber_of_key
from gnomon.metadata.client import Compare, Delete, DeletePrefix, Field, KeyValue, Metadata, Put

PUTS_MAX = 120
"""Records written in one transaction: an etcd takes 128 comparisons, of which some are the claimant's."""
PUTS_BYTES_MAX = 1 << 19
"""Bytes of them, but for a record that is larger alone: an etcd takes 1.5 MiB; one with many ranges has some 10 KiB."""
READS_MAX = 8
"""So many records are read one by one, for more of them all are."""


class SubscriberRecords:
    """The records below one prefix."""

    def __init__(self, metadata: Metadata, prefix: str, holds: str, claimant: Sequence[Compare] = ()) -> None:
        """The records whose keys begin with `prefix`; `holds` is the `hold_key` of the topic that has their records."""
        self.metadata = metadata
        self.prefix = prefix
        self._holds = holds
        self.claimant = tuple(claimant)
        self.held: dict[str, Held] = {}
        self.refused: set[str] = set()
        """Those that another has changed, until they are read on purpose: see `refuse`."""

    def key(self, subscriber: str) -> str:
        """The metadata key of a subscription.

        Raises:
            InvalidSubscriber: it cannot have this name.
        """
        return self.prefix + subscriber_in_key(subscriber)

    def segment_name(self, subscriber: str, segment_id: int) -> str:
        """The name of a segment's ledger."""
        return f"{self.key(subscriber)}/{segment_id}"

    async def read_all(self) -> None:
        """Holds every record there is, in order of name; while very many are read others go on."""
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
        """Holds those records that are neither held nor refused, where there are any."""
        missing = [name for name in subscribers if name not in self.held and name not in self.refused]
        if missing:
            self.held.update(await self._read(missing))

    async def _read(self, subscribers: Collection[str]) -> dict[str, Held]:
        """Those records that there are."""
        keys = {self.key(name): name for name in subscribers}
        if len(keys) > READS_MAX:
            found = await self.metadata.range(self.prefix)
            return {keys[item.key]: Held.of(item) for item in found.items if item.key in keys}
        items = [await self.metadata.get(key) for key in keys]
        return {keys[item.key]: Held.of(item) for item in items if item is not None}

    def hold(self, subscriber: str, held: Held | None) -> Held | None:
        """Holds a record that was read, or forgets it."""
        if held is None:
            self.held.pop(subscriber, None)
        else:
            self.held[subscriber] = held
        return held

    def refuse(self, subscriber: str) -> None:
        """Forgets a record that another has changed, and takes no change until its owner asks where it stands.

        Else what the owner still has to store would be judged by a record that it has not heard of.
        """
        self.hold(subscriber, None)
        self.refused.add(subscriber)

    def unchanged(self, subscriber: str) -> Compare:
        """Its record is the one held."""
        held = self.held.get(subscriber)
        return Compare(self.key(subscriber), Field.MOD_REVISION, 0 if held is None else held.modified)

    def told_to_retention(self, changes: Mapping[str, SubscriberRecord]) -> tuple[Put, ...]:
        """What joins the writing of these records: see invariant 4."""
        held = self.held
        if all(name in held and held[name].resets == record.resets for name, record in changes.items()):
            return ()
        return (Put(self._holds, b""),)

    async def change(self, subscribers: Iterable[str], judge: Judge, meet: Meet) -> tuple[str, ...]:
        """Puts what `judge` says of each, in transactions of at most PUTS_MAX.

        Returns:
            Those that were refused by `meet`, now or before; see `refuse`.

        Raises:
            StoreFenced: the claimant's comparisons fail.
            InvalidSubscriber: one cannot be stored by its name; those before it may be.
        """
        names = iter(subscribers)
        refused: list[str] = []
        while group := list(islice(names, PUTS_MAX)):
            if self.refused:
                refused += [name for name in group if name in self.refused]
                group = [name for name in group if name not in self.refused]
            refused += await self._change(group, judge, meet)
        return tuple(refused)

    async def _change(self, group: list[str], judge: Judge, meet: Meet) -> list[str]:
        refused: list[str] = []
        while group:
            puts, values, rest = self._judged(group, judge)
            if not puts:
                break
            compare = [self.unchanged(name) for name in puts]
            then = [Put(same.key, value) for same, value in zip(compare, values, strict=True)]
            result = await self.metadata.txn((*compare, *self.claimant), (*then, *self.told_to_retention(puts)))
            if result.succeeded:
                self._hold_written(puts, result.results)
                group = rest
            else:
                group = await self._meet_others(puts, meet, refused) + rest
        return refused

    def _hold_written(self, puts: Mapping[str, SubscriberRecord], results: Iterable[object]) -> None:
        before: Held | None = None
        for (name, record), item in zip(puts.items(), results, strict=False):
            assert isinstance(item, KeyValue), f"a transaction did not say what it put for {name!r}"
            held = Held(*record[1:], item.create_revision, item.mod_revision)
            if held != before:  # else they stand alike, as most do whose consumers share a connection
                before = held
            self.held[name] = before

    def _judged(self, group: list[str], judge: Judge) -> tuple[dict[str, SubscriberRecord], list[bytes], list[str]]:
        """What to put of the first ones, as much as fits a transaction, and the ones behind."""
        puts: dict[str, SubscriberRecord] = {}
        values: list[bytes] = []
        size = 0
        for number, name in enumerate(group):
            record = judge(name, self.held.get(name))
            if record is None:
                continue
            if name not in self.held:
                self.key(name)  # raises where it can have none
            value = record.encode()
            size += len(value)
            if size > PUTS_BYTES_MAX and puts:
                return puts, values, group[number:]
            puts[name] = record
            values.append(value)
        return puts, values, []

    async def _meet_others(self, puts: dict[str, SubscriberRecord], meet: Meet, refused: list[str]) -> list[str]:
        """Reads what others have changed, adds to `refused`; gives those to judge again."""
        found = await self._read(puts)
        again, changed = [], False
        for name, record in puts.items():
            before, after = self.held.get(name), found.get(name)
            if (before and before.modified) == (after and after.modified):
                again.append(name)
                continue
            changed = True
            conflict = meet(record, before, after)
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
            f"positions under {self.prefix} were not stored: the partition has another owner by now, or its topic was"
            " deleted; look up its leader again"
        )

    async def delete(self, subscriber: str) -> None:
        """Deletes a record and its segment's, whatever is in them; nothing where there is none.

        Raises:
            StoreFenced: as `change`.
        """
        key = self.key(subscriber)
        item = await self.metadata.get(key)
        while item is not None:
            compare = (Compare(key, Field.MOD_REVISION, item.mod_revision), *self.claimant)
            gone = (Delete(key), DeletePrefix(f"{ledger_key(key)}/"), Put(self._holds, b""))
            if (await self.metadata.txn(compare, gone)).succeeded:
                break
            before, item = item, await self.metadata.get(key)
            if before == item:
                raise self.fenced()
        self.hold(subscriber, None)
        self.refused.discard(subscriber)
