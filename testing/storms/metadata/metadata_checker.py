"""Judges a metadata service by its commits and by the answers to its clients, against the model. Pure.

    history = MetadataHistory()
    history.committed(batch, now)                       # each batch of the service's own watch over everything
    asked = history.asks(Txn(...))                      # its outcome is unknown until a result is set
    asked.result = await metadata.txn(...)
    assert history.check() == []

1. Each committed revision has a cause: a transaction whose result has this revision, one of unknown outcome, or the end
   of a lease. The model makes the same revision of that transaction.
2. The result of a transaction equals the model's for the revision in the result; so does the result of a range.
3. No answer has an older revision than an answer that anybody got before the request.
4. A lease ends only when it is revoked, or when its time since the last renewal is over. A lease that ended stays so.
5. A watch delivers the batches of the model, each once, in order.

Every put has a value of its own, so that a revision names its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gnomon.metadata.client import KeyValue, LeaseId, Put, RangeResult, Revision, TxnOutcome, WatchBatch
from gnomon.metadata.request import Txn
from gnomon.testing.simulation.checkers import check_watch
from gnomon.testing.storms.metadata.metadata_model import Keys, MetadataModel

FINDINGS_MAX = 10


@dataclass(slots=True)
class TracedTransaction:
    """A transaction; its caller got `result`, or an error (`refused`), or neither if there was no answer."""

    txn: Txn
    floor: int
    """The highest revision that any client had got when the transaction was sent."""
    result: TxnOutcome | None = None
    refused: bool = False
    """Whether the transaction certainly had no effect."""

    @property
    def puts(self) -> bool:
        """Whether the transaction may put something; then it explains one revision only."""
        return any(isinstance(operation, Put) for operation in (*self.txn.then, *self.txn.otherwise))


@dataclass(slots=True)
class LeaseLife:
    """The known state of one lease; times in seconds."""

    ttl: float
    renewed: float
    """The time of the request for the last successful renewal."""
    revoked: bool = False
    """Whether a client asked for the end of the lease."""
    gone: bool = False
    """Whether a client knows that the lease has ended."""


@dataclass(slots=True)
class Watched:
    """A watch, and the batches that it has delivered."""

    prefix: str
    first: Revision
    batches: list[WatchBatch] = field(default_factory=list)
    ended: bool = False
    """Whether the watch ended before it delivered all batches."""


class MetadataHistory:
    """The history of one metadata store."""

    def __init__(self) -> None:
        self.told = 0
        """The highest revision that any client got."""
        self.leases: dict[LeaseId, LeaseLife] = {}
        self.watches: list[Watched] = []
        self.given = Revision(0)
        """The last revision that another source made; up to it, no cause is required."""
        self._states: list[Keys] = [{}]
        self._times: list[float] = [0.0]
        self._asked: list[TracedTransaction] = []
        self._wrong: list[str] = []

    @property
    def revision(self) -> Revision:
        """The last committed revision."""
        return Revision(len(self._states) - 1)

    @property
    def keys(self) -> Keys:
        """The keys as of the last committed revision."""
        return self._states[-1]

    def committed(self, batch: WatchBatch, now: float) -> None:
        """The service has committed a revision, at `now` or before."""
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

    def asks(self, txn: Txn) -> TracedTransaction:
        """A client sends a transaction."""
        self._asked.append(TracedTransaction(txn, self.told))
        return self._asked[-1]

    def tells(self, floor: int, revision: int, what: str) -> None:
        """A client gets a revision; `floor` was the highest known one when the client asked."""
        if revision < floor:
            self._wrong.append(f"{what} got revision {revision} after {floor} was known")
        self.told = max(self.told, revision)

    def renewed(self, lease: LeaseId, called: float, gone_before: bool) -> None:
        """A lease was renewed by a request at `called`; `gone_before`: a client then knew that it had ended."""
        life = self.leases[lease]
        life.renewed = max(life.renewed, called)
        if gone_before:
            self._wrong.append(f"lease {lease} was renewed after a client knew that it had ended")

    def lost(self, lease: LeaseId, now: float) -> None:
        """A lease has ended, at `now` or before."""
        life = self.leases[lease]
        if not life.revoked and now < life.renewed + life.ttl:
            text = f"lease {lease} of {life.ttl} s ended {now - life.renewed:.3f} s after it was renewed"
            self._wrong.append(text)

    def ranged(self, prefix: str, result: RangeResult) -> None:
        """A client read the keys with a prefix; the result is checked against the state at its revision."""
        if result.revision >= len(self._states):
            self._wrong.append(f"a range of {prefix!r} shows revision {result.revision}, {self.revision} is the last")
            return
        state = self._states[result.revision]
        expected = tuple(item for key, item in sorted(state.items()) if key.startswith(prefix))
        if result.items != expected:
            self._wrong.append(f"a range of {prefix!r} as of {result.revision} is {result.items}, not {expected}")

    def got(self, floor: int, key: str, item: KeyValue | None) -> None:
        """A client read a key; `floor` was the highest known revision when the client asked."""
        if all(state.get(key) != item for state in self._states[floor:]):
            self._wrong.append(f"a get of {key!r} returned {item} after revision {floor} was known")
        if item is not None:
            self.told = max(self.told, item.mod_revision)

    def behind(self) -> list[Watched]:
        """The watches that have not delivered all batches."""
        model = self._model(self.revision)
        return [
            watched
            for watched in self.watches
            if not watched.ended and len(watched.batches) < len(model.watched(watched.prefix, watched.first))
        ]

    def check(self) -> list[str]:
        """The anomalies as texts; called after all requests have ended."""
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
        explained: dict[int, TracedTransaction] = {}
        for asked in self._asked:
            result = asked.result
            if result is None:
                continue
            if result.revision > self.revision:
                yield f"{asked.txn} got revision {result.revision}, {self.revision} is the last one"
            elif self._makes(asked.txn, result.revision, result):
                if result.revision in explained:
                    yield f"{asked.txn} and {explained[result.revision].txn} both got the same revision as theirs"
                explained[result.revision] = asked
            elif self._model(result.revision).apply(asked.txn, 0.0) != result:
                yield f"{asked.txn} got {result}, as of {self._states[result.revision - 1 :][:2]}"
        unknown = [asked for asked in self._asked if asked.result is None and not asked.refused]
        for revision in range(self.given + 1, len(self._states)):
            if revision in explained or self._ended_by_lease(revision):
                continue
            made = next((asked for asked in unknown if self._makes(asked.txn, revision)), None)
            if made is None:
                before, after = self._states[revision - 1 : revision + 1]
                yield f"no transaction made revision {revision}: {_difference(before, after)}"
            elif made.puts:
                unknown.remove(made)

    def _makes(self, txn: Txn, revision: int, result: TxnOutcome | None = None) -> bool:
        """Whether the model makes this revision from the previous one by a transaction, with the same result."""
        if revision == 0:
            return False
        model = self._model(revision - 1)
        reply = model.apply(txn, 0.0)
        return model.revision == revision and model.keys == self._states[revision] and result in (None, reply)

    def _ended_by_lease(self, revision: int) -> bool:
        lease = _ended_lease(*self._states[revision - 1 : revision + 1])
        return lease is not None and lease in self.leases

    def _deletes(self, state: Keys) -> bool:
        """Whether a transaction may have made this state, which the end of a lease would make too."""
        for asked in self._asked:
            model = self._model(self.revision)
            model.apply(asked.txn, 0.0)
            if not asked.refused and model.keys == state:
                return True
        return False


def in_key_order(batch: WatchBatch) -> WatchBatch:
    """The batch with its events in the order of the model, by key."""
    return replace(batch, events=tuple(sorted(batch.events, key=lambda event: event.key)))


def _ended_lease(before: Keys, after: Keys) -> LeaseId | None:
    """The lease whose keys are exactly the deleted ones, if that is the only change."""
    if any(before.get(key) != item for key, item in after.items()):
        return None
    leases = {item.lease for key, item in before.items() if key not in after}
    lease = leases.pop() if len(leases) == 1 else None
    return None if any(item.lease == lease for item in after.values()) else lease


def _difference(before: Keys, after: Keys) -> Sequence[tuple[str, KeyValue | None]]:
    return [(key, after.get(key)) for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
