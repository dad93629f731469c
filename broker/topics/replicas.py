"""The copies of a partition's records in terms of Kafka: replica ids, and how many of them are in sync. Pure.

1. A partition has as many replicas as its ledgers keep copies of each record. An id represents a copy, not its
   place: copies are on bookies, which have no broker ids.
2. The leader is the first replica. The ids of other live brokers follow, then the lowest ids that no live broker has:
   a client connects to leaders only, and knows replicas on dead brokers from Kafka.
3. The last replicas are not in sync: one for each copy that is missing of the record that lacks most of them. The
   leader is always in sync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import count, islice, pairwise

from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.record import Fragment, LedgerRecord


def replica_ids(leader: int, brokers: Iterable[int], copies: int) -> list[int]:
    """The replicas of a partition (invariants 1 and 2).

    Args:
        leader: its id; another than those of `brokers` if no broker leads.
        brokers: the ids of the live brokers.
    """
    ids = sorted(brokers)
    at = ids.index(leader) if leader in ids else 0
    return [*ids[at:], *ids[:at], *islice((free for free in count(1) if free not in ids), copies)][:copies]


def in_sync(replicas: list[int], missing: int) -> list[int]:
    """The replicas that are in sync if so many copies are missing (invariant 3)."""
    return replicas[: max(1, len(replicas) - missing)]


def missing_copies(record: LedgerRecord, absent: Collection[BookieId]) -> int:
    """The copies of the entry that lacks most of them, if these bookies are absent."""
    return max((_missing_in(record, fragment, absent) for fragment in _written(record)), default=0)


def _missing_in(record: LedgerRecord, fragment: Fragment, absent: Collection[BookieId]) -> int:
    lost = {index for index, bookie in enumerate(fragment.bookies) if bookie in absent}
    if not lost:
        return 0
    sets = map(record.quorum.write_set, map(EntryId, range(record.quorum.ensemble_size)))
    return max(len(lost.intersection(indexes)) for indexes in sets)


def _written(record: LedgerRecord) -> Iterator[Fragment]:
    """The fragments that have entries, or will have some."""
    fragments, start = record.fragments, record.start_entry
    for fragment, after in pairwise(fragments):
        if max(fragment.first_entry, start) < after.first_entry:
            yield fragment
    if not record.sealed or max(fragments[-1].first_entry, start) <= record.last_entry:
        yield fragments[-1]
