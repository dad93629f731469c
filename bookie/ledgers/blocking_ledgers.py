"""`Ledgers` for programs without Trio: the same methods, which block.

    with connect_ledgers_blocking("10.0.0.1:4001") as ledgers:
        ledger = ledgers.open("audit", OpenMode.O_CREATE)
        entry = ledger.add([b"one"])

One thread runs Trio until the `with` block ends. Any number of other threads may call the methods at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from gnomon.bookie.entry import Buffer
from gnomon.bookie.errors import LedgerClosed, LedgerError
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.catalog import OpenMode
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.ledgers import REPLICATED, Ledgers, connect_ledgers
from gnomon.bookie.record import DigestType, LedgerRecord, Quorum
from gnomon.metadata.remote import RETRY_SECONDS
from gnomon.runtime.trio_thread import TrioThread, in_trio_thread

UNDER_WAY_BYTES_MAX = 8 << 20
"""Limit of one `add_all`: a connection fails when it holds more than 64 MiB of unsent data."""


ASK_SECONDS = 1.0
"""Seconds that metadata and bookies may take to answer after the time of a `wait_for_lac` is up."""


class BlockingLedger:
    """An open ledger; see `Ledger` for the promises and errors of each method."""

    def __init__(self, thread: TrioThread, ledger: Ledger) -> None:
        self._thread = thread
        self._ledger = ledger

    @property
    def name(self) -> str:
        """The ledger's name."""
        return self._ledger.name

    @property
    def id(self) -> LedgerId:
        """The ledger's id, unique to this life of the name."""
        return self._ledger.id

    @property
    def session(self) -> SessionId:
        """The session of the last claim known to this handle: its own, if it writes."""
        return self._ledger.session

    @property
    def record(self) -> LedgerRecord:
        """The metadata record as known to this handle."""
        return self._ledger.record

    @property
    def properties(self) -> dict[str, Any]:
        """The record's properties; change them with `update`."""
        return self._ledger.properties

    @property
    def start_entry(self) -> EntryId:
        """The first entry after all shrinks."""
        return self._ledger.start_entry

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last readable entry; `start_entry - 1` or lower if there is none."""
        return self._ledger.last_add_confirmed

    @property
    def length_bytes(self) -> int:
        """Payload bytes of all entries ever appended, as known to this handle."""
        return self._ledger.length_bytes

    def add(self, payload: Sequence[Buffer]) -> EntryId:
        """Appends one entry, the concatenation of `payload`, and blocks until it is durable: see `Ledger.add`."""
        return self._thread.call(self._ledger.add, payload)

    def add_all(self, payloads: Sequence[Buffer]) -> list[EntryId]:
        """Appends an entry for each payload, many in flight at once, and blocks until every one is durable.

        Raises:
            LedgerError: some are not; those up to `last_add_confirmed` are, see `outcome_unknown` for the rest.
        """
        return self._thread.call(_add_all, self._ledger, payloads)

    def read(self, first: EntryId, last: EntryId) -> list[bytes]:
        """The payloads from `first` to `last` inclusive: see `Ledger.read`."""
        return self._thread.call(self._ledger.read, first, last)

    def refresh_lac(self) -> EntryId:
        """Reads the record and asks the bookies for the last add confirmed: see `Ledger.refresh_lac`."""
        return self._thread.call(self._ledger.refresh_lac)

    def wait_for_lac(self, entry: EntryId, *, seconds: float = float("inf")) -> EntryId:
        """Blocks until `entry` is confirmed, the ledger is sealed, or `seconds` have passed: see `Ledger.wait_for_lac`.

        When the time is up the record is read and the bookies are asked once more, for at most another second.

        Returns:
            The last add confirmed, which is below `entry` if the ledger ended or the time was up.
        """

        async def wait() -> EntryId:
            with trio.move_on_after(seconds):
                return await self._ledger.wait_for_lac(entry)
            return await self._ledger.refresh_lac(seconds=ASK_SECONDS)

        return self._thread.call(wait)

    def update(self, properties: Mapping[str, Any]) -> None:
        """Replaces the properties: see `Ledger.update`."""
        self._thread.call(self._ledger.update, dict(properties))

    def shrink(self, end_entry: EntryId, force: bool = False) -> None:
        """Deletes the entries below `end_entry`: see `Ledger.shrink`."""
        self._thread.call(self._ledger.shrink, end_entry, force)

    def seal(self) -> None:
        """Finishes the ledger: see `Ledger.seal`."""
        self._thread.call(self._ledger.seal)

    def close(self) -> None:
        """Refuses further appends and waits for the pending ones: see `Ledger.close`."""
        self._thread.call(self._ledger.close)


async def _add_all(ledger: Ledger, payloads: Sequence[Buffer]) -> list[EntryId]:
    failures: list[LedgerError] = []
    under_way_bytes = 0

    def done(_entry: EntryId, error: LedgerError | None) -> None:
        if error is not None:
            failures.append(error)

    entries: list[EntryId] = []
    for payload in payloads:
        if under_way_bytes > UNDER_WAY_BYTES_MAX:
            await ledger.drained()
            under_way_bytes = 0
        if failures:
            break
        entries.append(ledger.append((payload,), done))
        under_way_bytes += memoryview(payload).nbytes
    await ledger.drained()
    if failures:
        raise failures[0]
    return entries


class BlockingLedgers:
    """Ledgers by name; see `Ledgers` for the promises and errors of each method."""

    def __init__(self, thread: TrioThread, ledgers: Ledgers) -> None:
        self._thread = thread
        self._ledgers = ledgers

    def open(
        self,
        name: str,
        mode: OpenMode = OpenMode.O_RDONLY,
        *,
        password: bytes = b"",
        quorum: Quorum = REPLICATED,
        digest_type: DigestType | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> BlockingLedger:
        """Opens the ledger `name`: see `Ledgers.open`."""

        async def opened() -> Ledger:
            return await self._ledgers.open(
                name, mode, password=password, quorum=quorum, digest_type=digest_type, properties=properties
            )

        return BlockingLedger(self._thread, self._thread.call(opened))

    def delete(self, name: str, *, password: bytes = b"") -> None:
        """Deletes a ledger with its entries: see `Ledgers.delete`."""
        self._thread.call(self._ledgers.delete, name, password=password)

    def list(self, prefix: str = "") -> list[tuple[str, LedgerRecord]]:
        """Names and records of the ledgers whose name begins with `prefix`, in order of name."""
        return self._thread.call(self._ledgers.list, prefix)


@contextmanager
def connect_ledgers_blocking(metadata: str, *, retry_seconds: float = RETRY_SECONDS) -> Iterator[BlockingLedgers]:
    """The ledgers of a cluster, while the block lasts; see `connect_ledgers` for arguments and errors."""
    with in_trio_thread(connect_ledgers(metadata, retry_seconds=retry_seconds), "ledgers", _closed) as (
        ledgers,
        thread,
    ):
        yield BlockingLedgers(thread, ledgers)


def _closed() -> LedgerClosed:
    return LedgerClosed("the connection to the ledgers was closed: connect again")
