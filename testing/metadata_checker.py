"""Judges a metadata service by what it committed and by what its clients were told, against the model. Pure.

    history = MetadataHistory()
    history.committed(batch, now)                       # each batch of the service's own watch over everything
    asked = history.asks(Txn(...))                      # unknown until it is settled
    asked.result = await metadata.txn(...)
    assert history.check() == []

1. Each committed revision is explained: by the transaction that was told so, by one of unknown outcome, or by the end
   of a lease; and it is what the model makes of that transaction.
2. What a transaction was told is what the model says of the revision that it was told; so is a range.
3. Nobody is told an older revision than was told to anybody before he asked.
4. A lease ends when it is revoked, or once its time is over since it was renewed; what is gone stays gone.
5. A watch has delivered what the model says, each batch once, in order.

Every put has a value of its own, so that a revision names the transaction that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gnomon.metadata.client import KeyValue, LeaseId, Put, RangeResult, Revision, TxnResult, WatchBatch
from gnomon.metadata.request import Txn
from gnomon.testing.checkers import check_watch
from gnomon.testing.metadata_model import Keys, MetadataModel

FINDINGS_MAX = 10


@dataclass(slots=True)
class Asked:
    """A transaction; `result` and `refused` say what the caller was told, neither where he was told nothing."""

    txn: Txn
    floor: int
    """The highest revision that anybody had been told when it was asked."""
    result: TxnResult | None = None
    refused: bool = False
    """For certain: it had no effect."""

    @property
    def puts(self) -> bool:
        """Whether it could put something, which it can do but once."""
        return any(isinstance(operation, Put) for operation in (*self.txn.then, *self.txn.otherwise))


@dataclass(slots=True)
class LeaseLife:
    """What is known of one lease, in seconds."""

    ttl: float
    renewed: float
    """When the last renewal was asked for that succeeded."""
    revoked: bool = False
    """Somebody asked for its end."""
    gone: bool = False
    """Somebody was told that it is gone."""


@dataclass(slots=True)
class Watched:
    """A watch, and what it has delivered."""

    prefix: str
    first: Revision
    batches: list[WatchBatch] = field(default_factory=list)
    ended: bool = False
    """It ended before the rest."""


class MetadataHistory:
    """What happened to one store."""

    def __init__(self) -> None:
        self.told = 0
        """The highest revision that anybody was told."""
        self.leases: dict[LeaseId, LeaseLife] = {}
        self.watches: list[Watched] = []
        self.given = Revision(0)
        """The last one that somebody else has made."""
        self._states: list[Keys] = [{}]
        self._times: list[float] = [0.0]
        self._asked: list[Asked] = []
        self._wrong: list[str] = []

    @property
    def revision(self) -> Revision:
        """The last one that was committed."""
        return Revision(len(self._states) - 1)

    @property
    def keys(self) -> Keys:
        """What is stored as of that revision."""
        return self._states[-1]

    def committed(self, batch: WatchBatch, now: float) -> None:
        """The service has committed a revision, at the latest now."""
        if batch.revision != self.revision + 1:
            self._wrong.append(f"revision {batch.revision} was committed after {self.revision}")
        state = dict(self.keys)
        for event in batch.events:
            if event.current is None:
                state.pop(event.key, None)
            else:
                state[event.key] = event.current
        lease = _ended_lease(self.keys, state)
        if lease is not None and lease in self.leases and not self._deletes(state):
            self.lost(lease, now)
        self._states.append(state)
        self._times.append(now)

    def asks(self, txn: Txn) -> Asked:
        """Somebody asks for a transaction."""
        self._asked.append(Asked(txn, self.told))
        return self._asked[-1]

    def tells(self, floor: int, revision: int, what: str) -> None:
        """Somebody is told a revision who asked when the highest one told was `floor`."""
        if revision < floor:
            self._wrong.append(f"{what} was told revision {revision} after {floor} had been told")
        self.told = max(self.told, revision)

    def renewed(self, lease: LeaseId, called: float, gone_before: bool) -> None:
        """Somebody was told that a lease lives on, who asked at `called` and knew whether it was gone."""
        life = self.leases[lease]
        life.renewed = max(life.renewed, called)
        if gone_before:
            self._wrong.append(f"lease {lease} was renewed after somebody was told that it is gone")

    def lost(self, lease: LeaseId, now: float) -> None:
        """A lease has ended, at the latest now."""
        life = self.leases[lease]
        if not life.revoked and now < life.renewed + life.ttl:
            text = f"lease {lease} of {life.ttl} s ended {now - life.renewed:.3f} s after it was renewed"
            self._wrong.append(text)

    def ranged(self, prefix: str, result: RangeResult) -> None:
        """Somebody read what begins with a prefix; checked at once where that revision is known."""
        if result.revision >= len(self._states):
            self._wrong.append(f"a range of {prefix!r} shows revision {result.revision}, {self.revision} is the last")
            return
        state = self._states[result.revision]
        expected = tuple(item for key, item in sorted(state.items()) if key.startswith(prefix))
        if result.items != expected:
            self._wrong.append(f"a range of {prefix!r} as of {result.revision} is {result.items}, not {expected}")

    def got(self, floor: int, key: str, item: KeyValue | None) -> None:
        """Somebody read a key who asked when the highest revision told was `floor`."""
        if all(state.get(key) != item for state in self._states[floor:]):
            self._wrong.append(f"a get of {key!r} gave {item} after revision {floor} had been told")
        if item is not None:
            self.told = max(self.told, item.mod_revision)

    def behind(self) -> list[Watched]:
        """The watches that something is missing of."""
        model = self._model(self.revision)
        return [
            watched
            for watched in self.watches
            if not watched.ended and len(watched.batches) < len(model.watched(watched.prefix, watched.first))
        ]

    def check(self) -> list[str]:
        """Everything that is wrong, once all is quiet."""
        wrong = [*self._wrong, *self._check_asked()]
        model = self._model(self.revision)
        for watched in self.watches:
            expected = model.watched(watched.prefix, watched.first)
            found = check_watch(expected, watched.batches, caught_up=not watched.ended)
            wrong += [f"a watch of {watched.prefix!r} from {watched.first}: {text}" for text in found]
        return wrong[:FINDINGS_MAX]

    def _model(self, revision: int) -> MetadataModel:
        model = MetadataModel()
        model.revisions = self._states[: revision + 1]
        model.leases = dict.fromkeys(self.leases, (float("inf"), float("inf")))
        return model

    def _check_asked(self) -> Iterator[str]:
        explained: dict[int, Asked] = {}
        for asked in self._asked:
            result = asked.result
            if result is None:
                continue
            if result.revision > self.revision:
                yield f"{asked.txn} was told revision {result.revision}, {self.revision} is the last one"
            elif self._makes(asked.txn, result.revision, result):
                if result.revision in explained:
                    yield f"{asked.txn} and {explained[result.revision].txn} both were told to have made it"
                explained[result.revision] = asked
            elif self._model(result.revision).apply(asked.txn, 0.0) != result:
                yield f"{asked.txn} was told {result}, as of {self._states[result.revision - 1 :][:2]}"
        unknown = [asked for asked in self._asked if asked.result is None and not asked.refused]
        for revision in range(self.given + 1, len(self._states)):
            if revision in explained or self._ended_by_lease(revision):
                continue
            made = next((asked for asked in unknown if self._makes(asked.txn, revision)), None)
            if made is None:
                before, after = self._states[revision - 1 : revision + 1]
                yield f"revision {revision} was made by nobody: {_difference(before, after)}"
            elif made.puts:
                unknown.remove(made)

    def _makes(self, txn: Txn, revision: int, result: TxnResult | None = None) -> bool:
        """Whether the model makes this revision of the one before by a transaction, and says the same of it."""
        if revision == 0:
            return False
        model = self._model(revision - 1)
        reply = model.apply(txn, 0.0)
        return model.revision == revision and model.keys == self._states[revision] and result in (None, reply)

    def _ended_by_lease(self, revision: int) -> bool:
        lease = _ended_lease(*self._states[revision - 1 : revision + 1])
        return lease is not None and lease in self.leases

    def _deletes(self, state: Keys) -> bool:
        """Whether a transaction that is under way, or was, may have deleted what a lease's end would have."""
        for asked in self._asked:
            model = self._model(self.revision)
            model.apply(asked.txn, 0.0)
            if not asked.refused and model.keys == state:
                return True
        return False


def in_key_order(batch: WatchBatch) -> WatchBatch:
    """As the model orders the events of one revision."""
    return replace(batch, events=tuple(sorted(batch.events, key=lambda event: event.key)))


def _ended_lease(before: Keys, after: Keys) -> LeaseId | None:
    """The lease whose keys, all of them, are what is gone."""
    if any(before.get(key) != item for key, item in after.items()):
        return None
    leases = {item.lease for key, item in before.items() if key not in after}
    lease = leases.pop() if len(leases) == 1 else None
    return None if any(item.lease == lease for item in after.values()) else lease


def _difference(before: Keys, after: Keys) -> Sequence[tuple[str, KeyValue | None]]:
    return [(key, after.get(key)) for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
