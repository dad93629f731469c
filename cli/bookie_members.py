"""`gnomon bookie list` and `gnomon bookie decommission`: the bookies that belong to a cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import trio

from gnomon.bookie.cookie import COOKIES
from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers import Ledgers
from gnomon.bookie.record import LedgerRecord
from gnomon.bookie.registry import BOOKIES, DRAINING, Registration
from gnomon.bookie.remote import RemoteBookie
from gnomon.cli.cluster_metadata import in_cluster
from gnomon.cli.daemon import address
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import config_option, read_settings
from gnomon.cli.options import TEXT, metadata_option
from gnomon.cli.output import note, output_option, show_list
from gnomon.metadata.client import Compare, Field, KeyValue, Put
from gnomon.runtime.settings import Settings
from gnomon.runtime.world import WorldError

PROGRESS_SECONDS = 1.0


def _settings(metadata: str | None, config_file: Path | None) -> Settings:
    return read_settings(config_file, **{"cluster.metadata": metadata}).settings


@click.command("list")
@click.option("--usage", is_flag=True, help="Also count the ledgers that name each bookie, and the bytes of its file.")
@metadata_option
@config_option
@output_option
def list_bookies(usage: bool, metadata_address: str | None, config_file: Path | None, output: str) -> None:
    """List the bookies of a cluster."""

    async def work(ledgers: Ledgers) -> list[dict[str, Any]]:
        rows = await _members(ledgers)
        if usage:
            named = Counter(name for _, record in await ledgers.list() for name in _bookies_of(record))
            for row in rows:
                row["ledgers"] = named[row["bookie"]]
                row["bytes"] = await _file_bytes(ledgers, row["bookie"])
        return rows

    rows = in_cluster(_settings(metadata_address, config_file), work)
    show_list(rows, ("bookie", "address", "domain", "state", *(("ledgers", "bytes") if usage else ())), output)


async def _members(ledgers: Ledgers) -> list[dict[str, Any]]:
    """Every bookie that has a cookie or is there; away are those whose lease is over."""
    metadata = ledgers.metadata
    cookies = _names(COOKIES, (await metadata.range(COOKIES)).items)
    draining = _names(DRAINING, (await metadata.range(DRAINING)).items)
    registered = (await metadata.range(BOOKIES)).items
    alive = {BookieId(item.key.removeprefix(BOOKIES)): Registration.decode(item.value) for item in registered}
    rows = []
    for name in sorted({*cookies, *alive}):
        at = alive.get(name)
        states = ["away" if at is None else "read-only" if at.read_only else "alive"]
        states += ["draining"] if name in draining else []
        rows.append(
            {
                "bookie": name,
                "address": None if at is None else address(at.host, at.port),
                "domain": None if at is None else at.domain,
                "state": ", ".join(states),
            }
        )
    return rows


def _names(prefix: str, items: tuple[KeyValue, ...]) -> list[BookieId]:
    return [BookieId(item.key.removeprefix(prefix)) for item in items]


async def _file_bytes(ledgers: Ledgers, name: BookieId) -> int | None:
    """What a bookie's store takes on its disk; None where it does not answer."""
    bookie = ledgers.bookies.get(name)
    if not isinstance(bookie, RemoteBookie) or bookie.client is None:
        return None
    try:
        return int(await bookie.client.call("file_bytes"))
    except WorldError:
        return None


def _bookies_of(record: LedgerRecord) -> set[BookieId]:
    return {name for fragment in record.fragments for name in fragment.bookies}


@click.command()
@click.argument("name", type=TEXT)
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Stay until it is empty, and say how far it is."
)
@metadata_option
@config_option
def decommission(name: str, wait: bool, metadata_address: str | None, config_file: Path | None) -> None:
    """Empty the bookie NAME for good: its entries are copied to others, then it is no member.

    One that is lost, with its disk, leaves in the same way. The auditor copies; interrupting this does not stop it.
    """
    bookie = BookieId(name)

    async def work(ledgers: Ledgers) -> None:
        cookie = await _checked(ledgers, bookie)
        same = Compare(cookie.key, Field.CREATE_REVISION, cookie.create_revision)
        if not (await ledgers.metadata.txn((same,), (Put(DRAINING + bookie, b""),))).succeeded:
            raise _unknown(bookie)
        note(f"bookie {name!r} is being emptied")
        if wait:
            await _wait(ledgers, bookie, cookie)

    in_cluster(_settings(metadata_address, config_file), work)


def _unknown(name: BookieId) -> Failure:
    return Failure(f"there is no bookie {name!r} in this cluster: `gnomon bookie list` shows all", Exit.CONFLICT)


async def _checked(ledgers: Ledgers, name: BookieId) -> KeyValue:
    """The cookie of a bookie that can leave.

    Raises:
        Failure: it is no member, or what it holds could not go elsewhere.
    """
    cookie = await ledgers.metadata.get(COOKIES + name)
    if cookie is None:
        raise _unknown(name)
    others = set(ledgers.bookies.available()) - {name}
    if not others:
        raise Failure(
            f"bookie {name!r} is the last one that takes entries, so that none would be left: start another first",
            Exit.CONFLICT,
        )
    for ledger, record in await ledgers.list():
        for fragment in record.fragments:
            if name in fragment.bookies and not others - set(fragment.bookies):
                raise Failure(
                    f"too few bookies would be left: ledger {ledger!r} lies on {', '.join(fragment.bookies)}, and no"
                    f" other one takes entries that could stand in for {name!r}: start another first",
                    Exit.CONFLICT,
                )
    return cookie


async def _wait(ledgers: Ledgers, name: BookieId, cookie: KeyValue) -> None:
    """Says how many ledgers still name the bookie, until it is no member."""
    told = None
    while True:
        stored = await ledgers.metadata.get(cookie.key)
        if stored is None or stored.create_revision != cookie.create_revision:
            break
        left = sum(name in _bookies_of(record) for _, record in await ledgers.list())
        if left != told:
            note(f"{left} ledgers still name bookie {name!r}")
            told = left
        await trio.sleep(PROGRESS_SECONDS)
    note(f"bookie {name!r} is no member any more: nothing needs its disk")
