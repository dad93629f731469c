"""Judges the clients of one table with one partition: reads are linearizable, races have one winner. Pure.

    truth = TableTruth()
    write = truth.write([(b"key", b"unique value")], [Comparison(...)], now=1.0)
    write.done(17, now=1.2)         # or write.refused({b"key": entry}, now=1.2), or nothing: unknown
    truth.read({b"key": None}, called=2.0, returned=2.1)
    truth.check(batches)            # the whole log, read after the faults have healed

1. A write that was acknowledged is in the log at its revision, once, in one batch. A refused one is not. An unknown one
   may be.
2. The comparisons of each write in the log held just before it. So of several writes at one revision one wins.
3. A read shows the entries after some batch of the log: after all that was acknowledged or shown before the call, and
   before all that was begun after the return. A refusal shows such entries, too. One for a revision that the key has
   no more may show older entries.
4. The records of a counter are 1, 2, 3 and so on. Each acknowledged sum is in the log, once, and higher than those that
   were acknowledged before the call.
5. A watch shows every change of its keys from its start on, each once, in the order of the log. With present values
   first: those of some state, and of each key every change after the value shown.
6. A key is expired by the leader only if its newest value has a time to live that is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

from gnomon.log.tables.changes import KeyChange
from gnomon.log.tables.key_entry import ABSENT, NEVER, KeyEntry, pack_entry
from gnomon.log.tables.operations import Comparison
from gnomon.log.tables.table_digest import TableDigest


class LoggedBatch(NamedTuple):
    """One batch of the log."""

    base_offset: int
    changes: Sequence[KeyChange]


@dataclass(slots=True, eq=False)
class TableWrite:
    """One write, with the virtual seconds of its call and its return."""

    changes: Sequence[tuple[bytes, bytes | None]]
    """Keys and values; values are unique, deletions are None."""
    comparisons: Sequence[Comparison]
    called: float
    returned: float = inf
    revision: int | None = None
    """That of its first record, if it was acknowledged."""
    current: Mapping[bytes, KeyEntry] | None = None
    """The entries that the refusal shows, if it was refused."""

    def done(self, revision: int, now: float) -> None:
        """The write was acknowledged."""
        self.revision, self.returned = revision, now

    def refused(self, current: Mapping[bytes, KeyEntry], now: float) -> None:
        """The write was refused, and the refusal shows these entries."""
        self.current, self.returned = current, now


@dataclass(frozen=True, slots=True)
class TableRead:
    """Entries that were shown together."""

    entries: Mapping[bytes, KeyEntry]
    """ABSENT for a key without a value."""
    called: float
    returned: float
    is_stale: bool = False
    """Whether older entries will do."""
    whole: bool = False
    """Whether these are all entries of the table."""


@dataclass(frozen=True, slots=True)
class CountedSum:
    """An acknowledged increment by one."""

    total: int
    called: float
    returned: float


WatchedChange: TypeAlias = tuple[int, bytes, bytes | None, bool]
"""Revision, key, value, and whether it expired."""


@dataclass(slots=True, eq=False)
class WatchedKeys:
    """The events that one watch has shown so far."""

    prefix: bytes
    first: int | None
    """The revision that it began at; None for present values first."""
    currents: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    """Revision and value of each present value."""
    changes: list[WatchedChange] = field(default_factory=list)
    complete: float = -inf
    """It was read until everything was shown that was acknowledged before this virtual second."""


@dataclass(slots=True)
class TableTruth:
    """The history of one table."""

    counter: bytes = b"counter"
    """The key that is only ever incremented, by one."""
    writes: list[TableWrite] = field(default_factory=list)
    reads: list[TableRead] = field(default_factory=list)
    sums: list[CountedSum] = field(default_factory=list)
    watched: list[WatchedKeys] = field(default_factory=list)
    increments: int = 0
    """Increments that were called."""

    def write(
        self, changes: Sequence[tuple[bytes, bytes | None]], comparisons: Sequence[Comparison], now: float
    ) -> TableWrite:
        """Somebody calls to write."""
        found = TableWrite(changes, comparisons, now)
        self.writes.append(found)
        return found

    def check(self, batches: Sequence[LoggedBatch]) -> None:
        """Compares the history with the whole log.

        Args:
            batches: from offset 0 on.

        Raises:
            AssertionError: one of the rules does not hold.
        """
        log = _WholeLog(batches)
        self._check_writes(log)
        self._check_counter(log)
        self._check_expiries(log)
        self._check_reads(log)
        for watched in self.watched:
            self._check_watched(log, watched)

    # --- writes -------------------------------------------------------------------------------------------------

    def _check_writes(self, log: _WholeLog) -> None:
        for write in self.writes:
            place = log.place_of(write)
            if write.revision is not None:
                assert place == write.revision, f"{write.changes} was acknowledged at {write.revision}, is at {place}"
                assert log.has_at(write, place), f"{write.changes} is not in one batch at {place}"
            if write.current is not None:
                assert place is None, f"{write.changes} was refused and is at {place}"
            if place is not None:
                for each in write.comparisons:
                    before = log.entry(each.key, place)
                    assert each.holds(before), f"{write.changes} is at {place} although {each} did not hold: {before}"

    def _check_counter(self, log: _WholeLog) -> None:
        values = [change.value for _, change in log.records if change.key == self.counter]
        assert values == [b"%d" % (number + 1) for number in range(len(values))], f"the counter went {values}"
        assert len(values) <= self.increments, f"{len(values)} increments of {self.increments}"
        totals = [each.total for each in self.sums]
        assert len(set(totals)) == len(totals), f"two increments had one sum: {sorted(totals)}"
        assert max(totals, default=0) <= len(values), f"the counter was acknowledged at {max(totals)} of {len(values)}"
        for one in self.sums:
            for other in self.sums:
                assert one.returned > other.called or one.total < other.total, f"{one} after {other}"

    def _check_expiries(self, log: _WholeLog) -> None:
        for revision, change in log.records:
            if change.is_expiry:
                entry = log.entry(change.key, revision)
                assert entry.expires_ms != NEVER, f"{change.key!r} expired at {revision} without a time to live"
                early_ms = entry.expires_ms - change.timestamp_ms
                assert early_ms <= 0, f"{change.key!r} expired at {change.timestamp_ms}, {early_ms} ms early"

    # --- reads --------------------------------------------------------------------------------------------------

    def _check_reads(self, log: _WholeLog) -> None:
        shown = [*self.reads, *self._shown_by_refusals()]
        lows = sorted([*self._acknowledged(), *_seen(shown)])
        begun = [(write.called, place) for write in self.writes if (place := log.place_of(write)) is not None]
        for read in shown:
            low = max((end for at, end in lows if at < read.called), default=0)
            high = min((place for at, place in begun if at > read.returned), default=log.end)
            ends = [end for end in log.ends if (read.is_stale or end >= low) and end <= high]
            assert any(log.shows(read, end) for end in ends), (
                f"{dict(read.entries)} was read between {read.called} and {read.returned}, and the log had no such"
                f" entries after {low} and up to {high}"
            )

    def _check_watched(self, log: _WholeLog, watched: WatchedKeys) -> None:
        end = max((end for at, end in self._acknowledged() if at < watched.complete), default=0)
        begins = log.ends if watched.first is None else [watched.first]
        right = [
            begin
            for begin in begins
            if (watched.first is not None or log.current(watched.prefix, begin) == watched.currents)
            and _begins_with(log.changes(watched.prefix, begin), watched.changes, end)
        ]
        assert right, f"a watch of {watched.prefix!r} from {watched.first} showed {watched.currents}, {watched.changes}"

    def _acknowledged(self) -> Iterator[tuple[float, int]]:
        for write in self.writes:
            if write.revision is not None:
                yield write.returned, write.revision + len(write.changes)

    def _shown_by_refusals(self) -> Iterator[TableRead]:
        for write in self.writes:
            if write.current is not None:
                entries = write.current
                assert not all(each.holds(entries[each.key]) for each in write.comparisons), (
                    f"{write.changes} was refused by what it expected"
                )
                final = any(each.never_holds_again(entries[each.key]) for each in write.comparisons)
                yield TableRead(entries, write.called, write.returned, is_stale=final)


def _begins_with(expected: Sequence[WatchedChange], shown: Sequence[WatchedChange], end: int) -> bool:
    """Whether a watch has shown the first of the expected changes, and all of those below offset `end`."""
    return list(shown) == list(expected[: len(shown)]) and all(each[0] >= end for each in expected[len(shown) :])


def _seen(reads: Sequence[TableRead]) -> Iterator[tuple[float, int]]:
    for read in reads:
        for entry in read.entries.values():
            if entry.version:
                yield read.returned, entry.revision + 1


class _WholeLog:
    """The log, and the entries after each of its records."""

    def __init__(self, batches: Sequence[LoggedBatch]) -> None:
        self.ends = [0]
        """The ends of the batches, and the start."""
        self.records: list[tuple[int, KeyChange]] = []
        self._entries: dict[bytes, list[tuple[int, KeyEntry]]] = {}
        """Of each key its entries, with the offsets after which they hold."""
        self._places: dict[bytes, int] = {}
        for base_offset, changes in batches:
            assert base_offset == self.end, f"the log has a gap before {base_offset}"
            for change in changes:
                self._add(len(self.records), change)
            self.ends.append(len(self.records))

    @property
    def end(self) -> int:
        """The end of the log."""
        return self.ends[-1]

    def _add(self, revision: int, change: KeyChange) -> None:
        key, value = change.key, change.value
        self.records.append((revision, change))
        before = self.entry(key, revision)
        after = ABSENT
        if value is not None:
            created = before.create_revision if before.version else revision
            expires_ms = change.timestamp_ms + change.ttl_ms if change.ttl_ms else NEVER
            after = KeyEntry(value, revision, created, before.version + 1, expires_ms)
            if not value.isdigit():
                assert value not in self._places, f"{value!r} is in the log twice"
                self._places[value] = revision
        self._entries.setdefault(key, []).append((revision + 1, after))

    def entry(self, key: bytes, end: int) -> KeyEntry:
        """The entry of a key after the first `end` records."""
        found = ABSENT
        for after, entry in self._entries.get(key, ()):
            if after > end:
                break
            found = entry
        return found

    def place_of(self, write: TableWrite) -> int | None:
        """Where a write begins; None if it is not in the log, or looks like others."""
        for number, (_, value) in enumerate(write.changes):
            if value is not None:
                place = self._places.get(value)
                return None if place is None else place - number
        return write.revision

    def has_at(self, write: TableWrite, place: int) -> bool:
        """Whether one batch has exactly the changes of a write, from `place` on."""
        end = place + len(write.changes)
        found = [(change.key, change.value) for _, change in self.records[place:end]]
        return found == list(write.changes) and not any(place < each < end for each in self.ends)

    def shows(self, read: TableRead, end: int) -> bool:
        """Whether a read shows the entries after the first `end` records."""
        if any(self.entry(key, end) != entry for key, entry in read.entries.items()):
            return False
        return not read.whole or all(key in read.entries or not self.entry(key, end).version for key in self._entries)

    def current(self, prefix: bytes, end: int) -> dict[bytes, tuple[int, bytes]]:
        """Revision and value of each key with a prefix after the first `end` records."""
        found = {key: self.entry(key, end) for key in self._entries if key.startswith(prefix)}
        return {key: (entry.revision, entry.value) for key, entry in found.items() if entry.version}

    def changes(self, prefix: bytes, begin: int) -> list[WatchedChange]:
        """The changes of keys with a prefix from the record `begin` on."""
        records = self.records[begin:]
        return [(at, each.key, each.value, each.is_expiry) for at, each in records if each.key.startswith(prefix)]

    def final(self) -> dict[bytes, KeyEntry]:
        """The entries of all keys that have a value at the end."""
        found = {key: self.entry(key, self.end) for key in self._entries}
        return {key: entry for key, entry in found.items() if entry.version}


def entries_after(batches: Sequence[LoggedBatch]) -> dict[bytes, KeyEntry]:
    """The entries that a log leaves."""
    return _WholeLog(batches).final()


def digest_after(batches: Sequence[LoggedBatch]) -> tuple[int, str]:
    """The number of keys that a log from offset 0 on leaves, and the digest of their entries."""
    digest = TableDigest()
    entries = entries_after(batches)
    digest.add((key, pack_entry(*entries[key])) for key in sorted(entries))
    return digest.keys, digest.digest().hex()
