"""The ledgers of a cluster as an API for programs.

    async with connect_ledgers("10.0.0.1:4001") as ledgers:
        ledger = await ledgers.open("audit", OpenMode.O_CREATE)
        entry = await ledger.add([b"one"])

`gnomon.connect_ledgers_blocking` is the same for programs without Trio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from gnomon.bookie.bookie import Bookies, known_bookie
from gnomon.bookie.errors import LedgerError, LedgerFenced
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import OpenMode, delete_ledger, list_ledgers, open_ledger, take_back_ledger
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.record import DigestType, LedgerRecord, Quorum
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.remote import EXPLICIT_LAC_SECONDS
from gnomon.metadata.client import Metadata, MetadataError
from gnomon.metadata.connect import MetadataAddress, connect_metadata, parse_metadata_address
from gnomon.metadata.remote import RETRY_SECONDS
from gnomon.runtime.background import background
from gnomon.runtime.logs import Logger, SilentLogger
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import World, WorldError

REPLICATED = Quorum(3, 3, 2)
READ_ENTRIES = 256
TELL_SECONDS = 1.0
NO_LEDGER = LedgerId(0)
OF_BROKERS = ("topics/", "subscriptions/")
"""Prefixes of ledgers in which brokers keep partitions and positions: others may read them, not change them."""


class _Creation:
    """A ledger that is being created, by a task that outlives a cancelled caller."""

    def __init__(self, create: Callable[[], Awaitable[Ledger]]) -> None:
        self.ended = trio.Event()
        self._create = create
        self._ledger: Ledger | None = None
        self._failure: Exception | None = None

    async def run(self) -> None:
        try:
            self._ledger = await self._create()
        except Exception as error:
            self._failure = error
        self.ended.set()

    def result(self) -> Ledger:
        """The ledger, once it has ended; raises as `create`."""
        if self._failure is not None:
            raise self._failure
        assert self._ledger is not None, "a ledger was created without a handle"
        return self._ledger


class Ledgers:
    """Ledgers by name, on bookies that this process knows. Handles live as long as this object.

    Every method may raise MetadataUnavailable: the metadata did not answer; a change may have been made.
    """

    def __init__(
        self, metadata: Metadata, bookies: Bookies, explicit_lac_seconds: float = EXPLICIT_LAC_SECONDS
    ) -> None:
        self.metadata = metadata
        self.bookies = bookies
        self._appended = False
        self._taking_back: dict[str, trio.Event] = {}
        """Names whose creation was cancelled and is not undone yet."""
        self._claims_given_up: set[str] = set()
        self._explicit_lac_seconds = explicit_lac_seconds

    async def open(
        self,
        name: str,
        mode: OpenMode = OpenMode.O_RDONLY,
        *,
        password: bytes = b"",
        quorum: Quorum = REPLICATED,
        digest_type: DigestType | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Ledger:
        """Opens the ledger `name`.

        A cancelled call creates no ledger; with O_APPEND it may already have fenced the writer.

        A new handle sees an entry of another writer once that writer has reported it to its bookies as confirmed:
        `explicit_lac_seconds` after the acknowledgement, or with the next entry. To see an entry that was acknowledged
        just now, wait for it with `wait_for_lac`.

        Args:
            mode: O_RDONLY reads confirmed entries and follows the tail, and fences no writer; O_APPEND fences any other
                writer, recovers the tail and continues in the same ledger; O_CREATE creates it and appends.
            password: of the ledger; the empty one if it has none.
            quorum: of a new ledger: the number of its bookies, of copies of each entry, and of copies that must be on
                disk before an entry is confirmed.
            digest_type: CRC32C, or MAC (keyed from the password, which it needs); None for CRC32C of a new ledger, and
                for that of an existing one.
            properties: of a new ledger, or in place of those of one opened with O_APPEND; any msgpack value.

        Raises:
            LedgerExists (O_CREATE), NoSuchLedger, LedgerSealed (O_APPEND).
            UnauthorizedAccess, WrongDigestType: the ledger has another one; nothing was read, written or fenced.
            LedgerFenced: another writer claimed it at the same time.
            NotEnoughBookies: too few accept entries (O_CREATE), or answered (O_APPEND).
            ValueError: the quorum or the mode is inconsistent, a MAC has no password, the name is empty, or is of a
                broker's ledger (O_CREATE, O_APPEND).
            TypeError: the password is not bytes, or the digest type is not a DigestType.
        """
        _check_given(name, password)
        if digest_type is not None and not isinstance(digest_type, DigestType):
            raise TypeError(f"the digest type is {digest_type!r:.40}: give one of {', '.join(map(str, DigestType))}")
        if mode is not OpenMode.O_RDONLY:
            _check_own(name)
        given = None if properties is None else dict(properties)
        self._appended |= mode is not OpenMode.O_RDONLY
        how = (self.metadata, self.bookies, name, digest_type, password, mode, given, quorum)
        if OpenMode.O_CREATE in mode:
            return await self._created(name, partial(open_ledger, *how))
        if OpenMode.O_APPEND in mode:
            return await self._claimed(name, partial(open_ledger, *how))
        return await open_ledger(*how)

    async def _claimed(self, name: str, claim: Callable[[], Awaitable[Ledger]]) -> Ledger:
        """Opens for append; the claim of an earlier, cancelled call may be recorded during this one."""
        while True:
            try:
                ledger = await claim()
            except trio.Cancelled:
                self._claims_given_up.add(name)
                raise
            except LedgerFenced:
                if name not in self._claims_given_up:
                    raise
                self._claims_given_up.remove(name)
            else:
                self._claims_given_up.discard(name)
                return ledger

    async def _created(self, name: str, create: Callable[[], Awaitable[Ledger]]) -> Ledger:
        """Creates a ledger. After a cancellation the ledger is deleted, before its name is created again by this
        process."""
        while name in self._taking_back:
            await self._taking_back[name].wait()
        creation = _Creation(create)
        self.bookies.start_soon(creation.run)
        try:
            await creation.ended.wait()
        except trio.Cancelled:
            before, taken_back = self._taking_back.get(name), trio.Event()
            self._taking_back[name] = taken_back
            self.bookies.start_soon(self._take_back, name, creation, before, taken_back)
            raise
        return creation.result()

    async def _take_back(
        self, name: str, creation: _Creation, before: trio.Event | None, taken_back: trio.Event
    ) -> None:
        await creation.ended.wait()
        # An error means that the creation failed, or that its outcome is unknown.
        with suppress(LedgerError, MetadataError, WorldError, ValueError, TypeError):
            await take_back_ledger(self.metadata, creation.result())
        if before is not None:  # an earlier cancelled creation of the same name
            await before.wait()
        if self._taking_back[name] is taken_back:
            del self._taking_back[name]
        taken_back.set()

    async def delete(self, name: str, *, password: bytes = b"") -> None:
        """Deletes a ledger with its entries; the name is free for a new one at once.

        Raises:
            NoSuchLedger, UnauthorizedAccess.
            ValueError: the name is empty, or that of a broker's ledger.
            TypeError: the password is not bytes.
        """
        _check_given(name, password)
        _check_own(name)
        await delete_ledger(self.metadata, self.bookies, name, password)

    async def list(self, prefix: str = "") -> list[tuple[str, LedgerRecord]]:
        """Names and records of the ledgers whose name begins with `prefix`, in order of name."""
        return await list_ledgers(self.metadata, prefix)

    async def tell_confirmed(self) -> None:
        """Waits until the last add confirmed of all appends has been sent to the bookies that are reachable.

        Optional: without it, readers see the last entries when the next writer claims the ledger.
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
    """The ledgers of a cluster, while the block lasts; an exception of the block leaves it unchanged.

    Args:
        metadata: the cluster's metadata, `HOST:PORT[,HOST:PORT…]` or `etcd://HOST:PORT[,…]`.
        world: None for the real one; a simulated one in simulations.
        retry_seconds: time to wait for an answer of the metadata service.
        explicit_lac_seconds: delay after the last add before the last add confirmed is sent to bookies, for readers in
            other processes; the next add sends it too.
        log: receives warnings when the bookies cannot be followed; None for no log.

    Raises:
        ValueError: the address has another form.
        MetadataUnavailable: nothing answers there.
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
        background() as nursery,
    ):
        bookies = RegisteredBookies(world, metadata, log, nursery, explicit_lac_seconds)
        await bookies.load()
        nursery.start_soon(bookies.run)
        ledgers = Ledgers(metadata, bookies, explicit_lac_seconds)
        yield ledgers
        await ledgers.tell_confirmed()


async def follow(ledger: Ledger, first: EntryId) -> AsyncIterator[tuple[EntryId, bytes]]:
    """Entries from `first` on, as they are confirmed; ends after the last one of a sealed ledger.

    Raises:
        NoSuchLedger: it was deleted meanwhile.
        EntryShrunk: `first` was deleted by a shrink.
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
