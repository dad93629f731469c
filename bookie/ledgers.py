"""The ledgers of a cluster, for programs of their own.

    async with connect_ledgers("10.0.0.1:4001") as ledgers:
        ledger = await ledgers.open("audit", OpenMode.O_CREATE)
        entry = await ledger.add([b"one"])

`gnomon.connect_ledgers_blocking` is the same for programs without Trio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from gnomon.bookie.client import Bookies, known_bookie
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.handle import Ledger
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledger import OpenMode, delete_ledger, list_ledgers, open_ledger
from gnomon.bookie.record import DigestType, LedgerRecord, Quorum
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.remote import EXPLICIT_LAC_SECONDS
from gnomon.metadata.client import Metadata
from gnomon.metadata.connect import MetadataAddress, connect_metadata, parse_metadata_address
from gnomon.metadata.remote import RETRY_SECONDS
from gnomon.runtime.logs import Logger, SilentLogger
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import World, WorldError

REPLICATED = Quorum(3, 3, 2)
READ_ENTRIES = 256
TELL_SECONDS = 1.0
NO_LEDGER = LedgerId(0)
OF_BROKERS = ("topics/", "subscriptions/")
"""Where the names begin of the ledgers in which brokers keep partitions and positions: others may read them."""


class Ledgers:
    """Ledgers by name, on bookies that this process knows. Handles live as long as this does.

    Every method may raise MetadataUnavailable: the metadata did not answer; what was to be changed may have been.
    """

    def __init__(
        self, metadata: Metadata, bookies: Bookies, explicit_lac_seconds: float = EXPLICIT_LAC_SECONDS
    ) -> None:
        self.metadata = metadata
        self.bookies = bookies
        self._appended = False
        self._explicit_lac_seconds = explicit_lac_seconds

    async def open(
        self,
        name: str,
        mode: OpenMode = OpenMode.O_RDONLY,
        *,
        password: bytes = b"",
        quorum: Quorum = REPLICATED,
        digest_type: DigestType = DigestType.CRC32C,
        properties: Mapping[str, Any] | None = None,
    ) -> Ledger:
        """Opens the ledger `name`.

        Args:
            mode: O_RDONLY reads what is confirmed and follows the tail, and disturbs nobody; O_APPEND fences any other
                writer, recovers the tail and goes on in the same ledger; O_CREATE makes it and appends.
            password: of the ledger; the empty one where it has none.
            quorum: of a new ledger: how many bookies it lies on, how many of them hold each entry, and how many of
                those must have it on disk before it is confirmed.
            digest_type: of a new ledger: CRC32C, or MAC (keyed from the password, which it needs).
            properties: of a new ledger, or in place of those of one opened with O_APPEND; what msgpack takes.

        Raises:
            LedgerExists (O_CREATE), NoSuchLedger, LedgerSealed (O_APPEND).
            UnauthorizedAccess: the password is another one; nothing was read, written or fenced.
            LedgerFenced: another writer claimed it at the same time.
            NotEnoughBookies: too few take entries (O_CREATE), or answered (O_APPEND).
            ValueError: the quorum or the mode makes no sense, a MAC has no password, the name is empty, or is of a
                broker's ledger (O_CREATE, O_APPEND).
            TypeError: the password is not of bytes.
        """
        _check_given(name, password)
        if mode is not OpenMode.O_RDONLY:
            _check_own(name)
        given = None if properties is None else dict(properties)
        self._appended |= mode is not OpenMode.O_RDONLY
        return await open_ledger(self.metadata, self.bookies, name, digest_type, password, mode, given, quorum)

    async def delete(self, name: str, *, password: bytes = b"") -> None:
        """Deletes a ledger with its entries; the same name can be given to a new one at once.

        Raises:
            NoSuchLedger, UnauthorizedAccess.
            LedgerFenced: it was changed by another meanwhile.
            ValueError: the name is empty, or that of a broker's ledger.
            TypeError: the password is not of bytes.
        """
        _check_given(name, password)
        _check_own(name)
        await delete_ledger(self.metadata, self.bookies, name, password)

    async def list(self, prefix: str = "") -> list[tuple[str, LedgerRecord]]:
        """Names and records of the ledgers whose name begins with `prefix`, in order of name."""
        return await list_ledgers(self.metadata, prefix)

    async def tell_confirmed(self) -> None:
        """Waits until the bookies were told how far what was appended here is confirmed, or are away.

        No harm is done without it: readers learn of the last entries when the next writer claims the ledger.
        """
        if self._appended:
            await self.bookies.clock.sleep(2 * self._explicit_lac_seconds)
            with trio.move_on_after(TELL_SECONDS):
                async with trio.open_nursery() as nursery:
                    for name in self.bookies.available():
                        nursery.start_soon(self._round_trip, name)

    async def _round_trip(self, name: BookieId) -> None:
        with suppress(LedgerError, WorldError):
            await known_bookie(self.bookies, name).last_add_confirmed(NO_LEDGER)


def _check_given(name: str, password: object) -> None:
    if not name:
        raise ValueError("the name of a ledger is empty: give at least one character")
    if not isinstance(password, bytes):
        raise TypeError(f"the password is a {type(password).__name__}: give bytes")


def _check_own(name: str) -> None:
    if name.startswith(OF_BROKERS):
        raise ValueError(f"ledger {name!r}: names that begin with {' or '.join(OF_BROKERS)} are those of brokers")


@asynccontextmanager
async def connect_ledgers(
    metadata: str | MetadataAddress,
    *,
    world: World | None = None,
    retry_seconds: float = RETRY_SECONDS,
    explicit_lac_seconds: float = EXPLICIT_LAC_SECONDS,
    log: Logger | None = None,
) -> AsyncIterator[Ledgers]:
    """The ledgers of a cluster, for as long as the block lasts.

    Args:
        metadata: the cluster's metadata, `HOST:PORT[,HOST:PORT…]` or `etcd://HOST:PORT[,…]`.
        world: None for the real one; a simulated one in simulations.
        retry_seconds: how long an answer of the metadata service is waited for.
        explicit_lac_seconds: how long after the last add the bookies are told that it is confirmed, so that readers
            in other processes see it; the next add tells it too.
        log: told where the bookies cannot be followed; None for nobody.

    Raises:
        ValueError: the address has another form.
        MetadataUnavailable: nobody answers there.
        ModuleNotFoundError: it is in etcd, and httpx2 is not installed.
    """
    address = parse_metadata_address(metadata) if isinstance(metadata, str) else metadata
    log = log or SilentLogger()
    if world is None:
        async with (
            open_trio_world() as real,
            _connected(real, address, retry_seconds, explicit_lac_seconds, log) as ledgers,
        ):
            yield ledgers
    else:
        async with _connected(world, address, retry_seconds, explicit_lac_seconds, log) as ledgers:
            yield ledgers


@asynccontextmanager
async def _connected(
    world: World, address: MetadataAddress, retry_seconds: float, explicit_lac_seconds: float, log: Logger
) -> AsyncIterator[Ledgers]:
    async with (
        connect_metadata(world, address, retry_seconds=retry_seconds) as metadata,
        trio.open_nursery() as nursery,
    ):
        bookies = RegisteredBookies(world, metadata, log, nursery, explicit_lac_seconds)
        await bookies.load()
        nursery.start_soon(bookies.run)
        ledgers = Ledgers(metadata, bookies, explicit_lac_seconds)
        try:
            yield ledgers
            await ledgers.tell_confirmed()
        finally:
            nursery.cancel_scope.cancel()


async def follow(ledger: Ledger, first: EntryId) -> AsyncIterator[tuple[EntryId, bytes]]:
    """Entries from `first` on, as they are confirmed; ends behind the last one of a sealed ledger.

    Raises:
        NoSuchLedger: it was deleted meanwhile.
        EntryShrunk: `first` was given up.
        LedgerError: an entry cannot be read.
    """
    while True:
        last = await ledger.wait_for_lac(first)
        if last < first:
            return
        while first <= last:
            for payload in await ledger.read(first, EntryId(min(last, first + READ_ENTRIES - 1))):
                yield first, payload
                first = EntryId(first + 1)
