"""The protocol of a state machine on its log: what the runtime calls, and what a machine returns.

1. Durable state changes only in `replay`. The runtime replays every record of the log when it loads the machine, and
   later each record that the machine appended, once that record is durable. It passes the same objects that a decision
   appended, in order.
2. All other state is soft: the machine changes it in any call, and a reload loses it. The module head of a machine
   names its soft state and says why the loss is harmless.
3. Between the append of a record and its replay the record is pending; a decision may depend on pending records only
   through soft state.
4. A machine whose append failed is never used again: nothing is rolled back.
5. The parts of a snapshot are made one after the other, while more records are appended. A part that is replayed after
   all records that were appended before it was made changes nothing. All parts, with the records appended after the
   first part was made, replace the whole log.
6. A machine is pure: it gets the time as arguments, `now` (monotonic seconds, for deadlines) and `wall_ms`
   (milliseconds since 1970, for records), and it acts on the outside only through the decisions and replies that it
   returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

Encoded: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record in the log; a record without a value undoes earlier ones with its key."""


class Refusal(Enum):
    """Why a request is not served by this machine now; the tenant has an error of its own for each."""

    NOT_LEADER = "not the leader"
    """Another broker serves the machine, or will."""
    LOADING = "loading"
    """The machine is being loaded, and too many requests wait for it already."""
    UNAVAILABLE = "unavailable"
    """The log cannot be read or written now; whether a record was appended is unknown."""


class RecordDamaged(Exception):
    """A stored record cannot be decoded; a machine is not served without it."""


class StoredRecord(NamedTuple):
    """A record as the log holds it, with the fields of its batch that may change its meaning.

    `producer_id` and `producer_epoch` are -1 in a batch that has none; `control` says that the record is a marker of
    the log itself, written at the end of a transaction.
    """

    key: bytes
    value: bytes | None
    producer_id: int
    producer_epoch: int
    control: bool


class LogRecord(Protocol):
    """A record as a machine understands it."""

    def encoded(self) -> Encoded:
        """Key and value as the log stores them."""


class HeldReply(Protocol):
    """The reply to a request, held back until it may leave."""

    def send(self) -> None:
        """Answers the request."""

    def refuse(self, refusal: Refusal) -> None:
        """Answers the request with a refusal instead: the record that the reply depends on may not be durable."""


Request = TypeVar("Request", contravariant=True)
Record = TypeVar("Record", bound=LogRecord)
Effect = TypeVar("Effect")


@dataclass(frozen=True, slots=True, eq=False)
class Append(Generic[Record, Effect]):
    """Records to append in one piece, and the replies and effects that wait until all of them are durable.

    Attributes:
        records: at least one.
        replies: are sent once the records are durable and replayed, and refused if that is never known.
        effects: for other brokers; are executed once the records are durable, and never if that is not known.
    """

    records: Sequence[Record]
    replies: Sequence[HeldReply] = ()
    effects: Sequence[Effect] = ()


@dataclass(slots=True, eq=False)
class Decision(Generic[Record, Effect]):
    """The decision of a machine: appends in order, and the replies and effects that depend on no record under way.

    The effects depend on records that are durable: a machine repeats them after it was loaded, because it
    is unknown whether its predecessor executed them.
    """

    appends: list[Append[Record, Effect]] = field(default_factory=list)
    replies: list[HeldReply] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)


class StateMachine(Protocol[Request, Record, Effect]):
    """The tenant's machine; one object lives from one load of its log to the next."""

    def decode(self, stored: StoredRecord) -> Record | None:
        """The meaning of a stored record, None if it has none for this machine.

        Raises:
            RecordDamaged: the bytes are damaged.
        """

    def replay(self, record: Record) -> None:
        """Applies a durable record."""

    def loaded(self, now: float, wall_ms: int) -> Decision[Record, Effect]:
        """The whole log was replayed: deadlines begin. Called once, before all methods below."""

    def handle(self, request: Request, now: float, wall_ms: int) -> Decision[Record, Effect]:
        """Handles one request; its reply is in this decision or in a later one."""

    def applied(self, now: float, wall_ms: int) -> Decision[Record, Effect]:
        """All records of the oldest pending append were replayed: the work that waited for them continues."""

    def tick(self, now: float, wall_ms: int) -> Decision[Record, Effect]:
        """Handles every deadline that is due at `now`."""

    def next_deadline(self) -> float:
        """The earliest time at which `tick` has something to do, in monotonic seconds; infinite if never."""

    def snapshot(self, pending: Callable[[], Iterable[Record]]) -> Iterator[Sequence[Record]]:
        """The parts of a snapshot, none of them empty: see invariant 5. `pending` gives the pending records of now."""

    def let_go(self, refusal: Refusal, now: float, wall_ms: int) -> Sequence[HeldReply]:
        """Returns refusals of all requests that wait for other requests or for time: the broker is about to stop."""

    def failed(self, refusal: Refusal) -> Sequence[HeldReply]:
        """Returns refusals of all requests that wait in the machine, which is not used again."""

    def successor(self, now: float) -> Callable[[], StateMachine[Request, Record, Effect]]:
        """Makes empty machines that may take this one's place; they may know its soft state as of `now`."""
