"""Judges ledgers, conditional writes and watches by their histories; `log_checker` judges partitions.

Each checker takes plain records of the answers that callers got. It returns a list of texts: the contradictions to the
promised behaviour. An operation of unknown outcome contradicts nothing, whether it took effect or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

E = TypeVar("E")


@dataclass(slots=True)
class LedgerHistory:
    """The history of one ledger.

    Attributes:
        acknowledged: entry id and payload of each acknowledged append, in the order of the acknowledgements.
        attempted: payloads of unknown outcome: any of them may be found.
        confirmed: the last add confirmed, as each reader saw it, in order, by the reader's name.
        reads: entry id and payload of each read, while the ledger was in use.
        sealed_at: the last entry id once the ledger was sealed, -1 for empty, None while it is open.
        start_entry: entries below were shrunk away.
        final: entry id to payload, read after healing.
    """

    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    attempted: set[bytes] = field(default_factory=set)
    confirmed: dict[str, list[int]] = field(default_factory=dict)
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    sealed_at: int | None = None
    start_entry: int = 0
    final: dict[int, bytes] = field(default_factory=dict)


def check_ledger(history: LedgerHistory) -> list[str]:
    """Acknowledged entries are readable and unchanged, ids have no gap, confirmations never go back.

    Args:
        history: the appends and reads of one append-only log.
    """
    wrong = []
    known = {payload for _, payload in history.acknowledged} | history.attempted
    for entry, payload in history.acknowledged:
        if entry >= history.start_entry and history.final.get(entry) != payload:
            wrong.append(f"entry {entry} was acknowledged as {payload!r} and reads {history.final.get(entry)!r}")
    for (before, _), (entry, _) in pairwise(history.acknowledged):
        if entry <= before:
            wrong.append(f"entry {entry} was acknowledged after entry {before}")
    for entry, payload in history.reads:
        if entry >= history.start_entry and history.final.get(entry) != payload:
            wrong.append(f"entry {entry} was read as {payload!r} and reads {history.final.get(entry)!r} now")
    ids = sorted(history.final)
    if ids and ids != list(range(ids[0], ids[-1] + 1)):
        missing = next(entry for entry in range(ids[0], ids[-1]) if entry not in history.final)
        wrong.append(f"entry {missing} is missing between {ids[0]} and {ids[-1]}")
    wrong += [
        f"entry {entry} holds {payload!r}, which nobody wrote"
        for entry, payload in history.final.items()
        if payload not in known
    ]
    if history.sealed_at is not None and ids and ids[-1] > history.sealed_at:
        wrong.append(f"the ledger was sealed at {history.sealed_at} and has entry {ids[-1]}")
    for reader, seen in history.confirmed.items():
        wrong += [
            f"{reader} saw {entry} confirmed after {before}" for before, entry in pairwise(seen) if entry < before
        ]
    return wrong


def check_copies(copies: Mapping[str, Mapping[int, bytes]], entries: Mapping[int, bytes], ack_quorum: int) -> list[str]:
    """Every committed entry is on `ack_quorum` bookies, the same on each.

    Args:
        copies: by bookie, its entries of the ledger.
        entries: the committed ones.
        ack_quorum: the number of copies that an acknowledgement waits for.
    """
    wrong = []
    for entry, payload in entries.items():
        count = sum(held.get(entry) == payload for held in copies.values())
        if count < ack_quorum:
            wrong.append(f"entry {entry} lies on {count} bookies, {ack_quorum} have acknowledged it")
    return wrong


class ConditionalWrite(NamedTuple):
    """A put of one key; times are virtual seconds of call and return.

    `expected` is the key's revision that the write was conditional on, None for an unconditional one. `revision` is the
    resulting one; None means an unknown outcome. Refused writes are left out.
    """

    key: str
    called_at: float
    returned_at: float
    revision: int | None
    expected: int | None = None


class KeyRead(NamedTuple):
    """A read of one key that found this revision, 0 for none."""

    key: str
    called_at: float
    returned_at: float
    revision: int


def check_conditional_writes(writes: Sequence[ConditionalWrite], reads: Sequence[KeyRead] = ()) -> list[str]:
    """Revisions follow real time, no conditional write overtook another write, no read is stale.

    Args:
        writes: of any keys, in any order; revisions are those of one store.
        reads: of the same keys, in any order.
    """
    certain = sorted((write for write in writes if write.revision is not None), key=lambda write: write.revision or 0)
    unknown = {write.key for write in writes if write.revision is None}
    wrong = []
    last: dict[str, int] = {}
    latest_call, latest_revision = float("-inf"), 0
    for write in certain:
        revision = write.revision or 0
        if revision == latest_revision:
            wrong.append(f"two writes got revision {revision}")
        if write.returned_at < latest_call:
            wrong.append(
                f"the write of {write.key!r} at revision {revision} had returned before a write with a lower revision, "
                f"{latest_revision} or less, was called"
            )
        latest_call, latest_revision = max(latest_call, write.called_at), revision
        before = last.get(write.key, 0)
        lost_update = write.expected is not None and (
            write.expected < before or (write.expected > before and write.key not in unknown)
        )
        if lost_update:
            wrong.append(
                f"the write of {write.key!r} at revision {revision} expected {write.expected}, it was at {before}"
            )
        last[write.key] = revision
    return wrong + _check_reads(certain, reads)


def _check_reads(certain: Sequence[ConditionalWrite], reads: Sequence[KeyRead]) -> list[str]:
    """Scans calls of reads and returns of writes and reads in time order: a read sees at least everything returned
    before it."""
    done = [(write.returned_at, 1, write.key, write.revision or 0) for write in certain]
    done += [(read.returned_at, 1, read.key, read.revision) for read in reads]
    called = [(read.called_at, 0, read.key, read.revision) for read in reads]
    floor: dict[str, int] = {}
    wrong = []
    for _, returned, key, revision in sorted(done + called):
        if returned:
            floor[key] = max(floor.get(key, 0), revision)
        elif revision < floor.get(key, 0):
            wrong.append(f"a read of {key!r} found revision {revision} after {floor[key]} had been seen")
    return wrong


def check_watch(committed: Sequence[E], received: Sequence[E], *, caught_up: bool = True) -> list[str]:
    """A watch delivers the committed events from its revision on, each once, in order.

    Args:
        committed: every event of the prefix from the watch's first revision on, in order.
        received: the events that the watcher got, reconnects included.
        caught_up: whether the watcher had the time to get all of them.
    """
    for index, (expected, got) in enumerate(zip(committed, received, strict=False)):
        if expected != got:
            if got in committed[:index]:
                return [f"event {index}: {got!r} came again, {expected!r} was due"]
            if got in committed[index:]:
                return [f"event {index}: {expected!r} was left out, {got!r} came"]
            return [f"event {index}: {got!r} was never committed, {expected!r} was due"]
    if len(received) > len(committed):
        return [f"event {len(committed)}: {received[len(committed)]!r} came after the last committed one"]
    if caught_up and len(received) < len(committed):
        return [f"event {len(received)}: {committed[len(received)]!r} never came"]
    return []
