"""The place where `gnomon ledger` finds ledgers: a cluster, or a data directory that no broker has open."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import trio

from gnomon.bookie.bookie import known_bookie
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.ledgers import OF_BROKERS, REPLICATED, Ledgers
from gnomon.bookie.record import LedgerRecord, Quorum
from gnomon.broker.stores import Stores
from gnomon.cli.cluster_metadata import in_cluster
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import cluster_options, cluster_settings, data_dir_option
from gnomon.cli.ledger.data_directory import end_on_disk, in_stores
from gnomon.cli.options import PASSWORD_VARIABLE
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.world import WorldError

T = TypeVar("T")

ASK_SECONDS = 2.0
"""Seconds that a bookie may take to report a ledger's last add confirmed, if other bookies report it too."""


class Found(Protocol):
    """Ledgers within reach."""

    ledgers: Ledgers

    async def end_of(self, ledger: LedgerId, record: LedgerRecord) -> EntryId:
        """The last entry known to be confirmed; the one before the first if there is none."""

    async def to_read(self, name: str, password: bytes) -> Ledger:
        """Opens a ledger for reading confirmed entries; changes nothing."""


class ClusterLedgers:
    """The ledgers of a cluster."""

    def __init__(self, ledgers: Ledgers) -> None:
        self.ledgers = ledgers

    async def end_of(self, ledger: LedgerId, record: LedgerRecord) -> EntryId:
        """See `Found.end_of`: the bookies are asked."""
        if record.sealed:
            return record.last_entry
        heard = [EntryId(record.start_entry - 1)]

        async def ask(name: BookieId) -> None:
            with suppress(LedgerError, WorldError):
                heard.append((await known_bookie(self.ledgers.bookies, name).last_add_confirmed(ledger)).entry)

        with trio.move_on_after(ASK_SECONDS):
            async with trio.open_nursery() as nursery:
                for name in record.fragments[-1].bookies:
                    nursery.start_soon(ask, name)
        return max(heard)

    async def to_read(self, name: str, password: bytes) -> Ledger:
        """See `Found.to_read`."""
        return await self.ledgers.open(name, password=password)


class DirectoryLedgers:
    """The ledgers of a data directory."""

    def __init__(self, stores: Stores) -> None:
        self.ledgers = Ledgers(stores.metadata, stores.bookies)
        self._stores = stores

    async def end_of(self, ledger: LedgerId, record: LedgerRecord) -> EntryId:
        """See `Found.end_of`."""
        return await end_on_disk(self._stores, ledger, record)

    async def to_read(self, name: str, password: bytes) -> Ledger:
        """See `Found.to_read`."""
        opened = await self.ledgers.open(name, password=password)
        await self.end_of(opened.id, opened.record)
        await opened.ask_bookies()
        return opened


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The place that a command was given."""

    settings: Settings
    cluster: bool

    @property
    def quorum(self) -> Quorum:
        """The quorum of ledgers that are created without one."""
        return REPLICATED if self.cluster else Quorum()

    def check(self, quorum: Quorum) -> None:
        """Raises UsageError if a quorum is inconsistent, or can never be met here."""
        try:
            quorum.check()
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if not self.cluster and quorum.ensemble_size > 1:
            raise click.UsageError(
                f"a data directory has one bookie, and the ledger would lie on {quorum.ensemble_size}: leave the"
                " numbers out, or give --metadata to create it in a cluster"
            )

    def run(self, work: Callable[[Found], Awaitable[T]], *, create: bool = False) -> T:
        """Runs `work` and returns its result.

        Args:
            create: create a new data directory if there is none.

        Raises:
            Failure: the place cannot be reached, or `work` met an error that an operator can act on.
        """
        if self.cluster:
            return in_cluster(self.settings, lambda ledgers: work(ClusterLedgers(ledgers)))
        return in_stores(self.settings, lambda stores: work(DirectoryLedgers(stores)), create=create)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--metadata`, `--profile`, `--data-dir` and `--config`, which the command gets as one `place`."""

    @wraps(command)
    def run(
        *args: Any, metadata_address: str | None, data_dir: str | None, config_file: Path | None, **others: Any
    ) -> Any:
        if metadata_address is not None and data_dir is not None:
            raise click.UsageError("--metadata is a cluster, --data-dir a directory: give one of them")
        settings = cluster_settings(metadata_address, config_file, data_dir)
        cluster = data_dir is None and bool(settings.cluster.metadata)
        return command(*args, place=LedgerPlace(settings, cluster), **others)

    return cluster_options(data_dir_option(run))


def password_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--password-file`; the command gets the password itself, which never appears in its arguments."""

    @wraps(command)
    def run(*args: Any, password_file: Path | None, **others: Any) -> Any:
        return command(*args, password=_password(password_file), **others)

    return click.option(
        "--password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"Holds the ledger's password; the variable {PASSWORD_VARIABLE} unless given.",
    )(run)


def check_may_change(name: str) -> None:
    """Raises Failure for a ledger of a Kafka partition or a subscription, which only brokers change."""
    if name.startswith(OF_BROKERS):
        raise Failure(
            f"ledger {name!r} belongs to a Kafka partition or a subscription: change it through its topic",
            Exit.CONFLICT,
        )


def _password(file: Path | None) -> bytes:
    if file is None:
        return os.fsencode(os.environ.get(PASSWORD_VARIABLE, ""))
    try:
        return file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise Failure(f"the password file {file} cannot be read: {error.strerror}") from None
