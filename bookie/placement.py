"""Chooses the bookies of a ledger's entries. Pure.

1. The bookies of a ledger are spread over as many domains (racks, zones) as possible.
2. Among equal candidates the ledger's name decides, by a hash that spreads ledgers evenly and moves few of them when a
   bookie comes or goes (rendezvous hashing).
3. An ensemble for a new ledger may include bookies that accept no entries now, as long as each entry can reach an ack
   quorum without them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from gnomon.bookie.ids import BookieId
from gnomon.bookie.record import Quorum


def place(
    ledger_name: str,
    available: Mapping[BookieId, str],
    count: int,
    *,
    beside: Sequence[tuple[BookieId, str]] = (),
    without: Collection[BookieId] = (),
) -> list[BookieId]:
    """Up to `count` bookies for a ledger, fewer if there are not enough.

    Args:
        available: the domain of each bookie that accepts entries, "" for none.
        beside: bookies, with their domains, that have copies already; they are not chosen again.
        without: bookies not to choose.
    """
    used = Counter(domain for _, domain in beside)
    taken = {name for name, _ in beside}
    left = [name for name in available if name not in taken and name not in without]
    left.sort(key=lambda name: _rank(ledger_name, name))
    chosen: list[BookieId] = []
    while left and len(chosen) < count:
        best = min(left, key=lambda name: used[available[name]])  # the first of equal ones
        left.remove(best)
        used[available[best]] += 1
        chosen.append(best)
    return chosen


def ensemble_for(
    ledger_name: str, quorum: Quorum, available: Mapping[BookieId, str], known: Mapping[BookieId, str]
) -> tuple[BookieId, ...] | None:
    """The ensemble of a new ledger; None if the available bookies cannot form an ack quorum of every write set.

    If fewer are available than the ensemble needs, it is filled up with other known bookies: they are written to once
    they are back, or replaced.
    """
    size = quorum.ensemble_size
    chosen = place(ledger_name, available, size)
    if size - len(chosen) > quorum.write_quorum - quorum.ack_quorum:
        return None
    if len(chosen) < size:
        beside = [(name, available[name]) for name in chosen]
        chosen += place(ledger_name, known, size - len(chosen), beside=beside)
    return tuple(chosen) if len(chosen) == size else None


def _rank(ledger_name: str, bookie: BookieId) -> bytes:
    return hashlib.blake2b(f"{ledger_name}\0{bookie}".encode(), digest_size=8).digest()
