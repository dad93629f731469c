"""`gnomon bookie list` and `gnomon bookie decommission`: the bookies that belong to a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import trio

from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.bookie.record import LedgerRecord
from gnomon.bookie.registration import BOOKIES, COOKIES, DRAINING, OLDER, REPAIRED, BookieRegistration
from gnomon.bookie.remote import RemoteBookie
from gnomon.cli.cluster_metadata import in_cluster, metadata_address
from gnomon.cli.daemon import address
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import cluster_options, cluster_settings
from gnomon.cli.names.completion import ANSWER_SECONDS
from gnomon.cli.options import TEXT
from gnomon.cli.output import note, output_option, show_list
from gnomon.metadata.client import Compare, KeyField, KeyValue, Put
from gnomon.metadata.connect import MetadataAddress, connect_metadata
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import WorldError

PROGRESS_SECONDS = 1.0


@click.command("list")
@click.option("--usage", is_flag=True, help="Also count the ledgers that name each bookie, and the bytes of its file.")
@cluster_options
@output_option
def list_bookies(usage: bool, metadata_address: str | None, config_file: Path | None, output: str) -> None:
    """List the bookies of a cluster."""

    async def work(ledgers: Ledgers) -> list[dict[str, Any]]:
        rows = await members(ledgers)
        if usage:
            await add_usage(ledgers, rows, await ledgers.list())
        return rows

    rows = in_cluster(cluster_settings(metadata_address, config_file), work)
    show_list(rows, ("bookie", "address", "domain", "state", *(("ledgers", "bytes") if usage else ())), output)


async def members(ledgers: Ledgers) -> list[dict[str, Any]]:
    """Every bookie that has a cookie or is registered; those whose lease is over are `away`."""
    metadata = ledgers.metadata
    cookies = _names(COOKIES, (await metadata.range(COOKIES)).items)
    draining = _names(DRAINING, (await metadata.range(DRAINING)).items)
    older = _names(OLDER, tuple(item for item in (await metadata.range(OLDER)).items if item.value != REPAIRED))
    registered = (await metadata.range(BOOKIES)).items
    alive = {BookieId(item.key.removeprefix(BOOKIES)): BookieRegistration.decode(item.value) for item in registered}
    rows = []
    for name in sorted({*cookies, *alive}):
        at = alive.get(name)
        states = ["away" if at is None else "read-only" if at.read_only else "alive"]
        states += ["draining"] if name in draining else []
        states += ["older copy"] if name in older else []
        rows.append(
            {
                "bookie": name,
                "address": None if at is None else address(at.host, at.port),
                "domain": None if at is None else at.domain,
                "state": ", ".join(states),
            }
        )
    return rows


async def add_usage(
    ledgers: Ledgers, rows: Sequence[dict[str, Any]], records: Sequence[tuple[str, LedgerRecord]]
) -> None:
    """Adds to each row of `members` the number of ledgers that name the bookie, and the bytes of its file."""
    named = Counter(name for _, record in records for name in record.bookies)
    for row in rows:
        row["ledgers"] = named[row["bookie"]]
        row["bytes"] = await _file_bytes(ledgers, row["bookie"])


def lacking_copies(
    rows: Sequence[Mapping[str, Any]], records: Sequence[tuple[str, LedgerRecord]], reported: Sequence[str]
) -> list[str]:
    """The ledgers that may lack copies: those that were reported, and those that name a bookie that is away.

    Args:
        rows: the bookies, as from `members`.
    """
    alive: set[BookieId] = {row["bookie"] for row in rows if not row["state"].startswith("away")}
    lacking = [name for name, record in records if not alive.issuperset(record.bookies)]
    return list(dict.fromkeys([*reported, *lacking]))


def _names(prefix: str, items: tuple[KeyValue, ...]) -> list[BookieId]:
    return [BookieId(item.key.removeprefix(prefix)) for item in items]


async def _file_bytes(ledgers: Ledgers, name: BookieId) -> int | None:
    """The size of a bookie's store on its disk; None if the bookie does not answer."""
    bookie = ledgers.bookies.get(name)
    if not isinstance(bookie, RemoteBookie) or bookie.client is None:
        return None
    try:
        return int(await bookie.client.call("file_bytes"))
    except WorldError:
        return None


def bookie_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the name of a bookie of the cluster; without an answer in time there are none."""
    try:
        with ctx.scope(cleanup=False):
            settings = cluster_settings(ctx.params.get("metadata_address"), ctx.params.get("config_file"))
        names = trio.run(_names_at, metadata_address(settings))
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _names_at(metadata: MetadataAddress) -> list[BookieId]:
    with trio.move_on_after(ANSWER_SECONDS):
        async with open_trio_world() as world, connect_metadata(world, metadata) as store:
            return _names(COOKIES, (await store.range(COOKIES)).items)
    return []


@click.command()
@click.argument("name", type=TEXT, shell_complete=bookie_names)
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until it is empty, and report the progress."
)
@cluster_options
def decommission(name: str, wait: bool, metadata_address: str | None, config_file: Path | None) -> None:
    """Empty the bookie NAME for good: its entries are copied to others, then its membership ends.

    A bookie that is lost with its disk leaves in the same way. The auditor copies; interrupting this command does not
    stop it.
    """
    bookie = BookieId(name)

    async def work(ledgers: Ledgers) -> None:
        cookie = await _checked(ledgers, bookie)
        same = Compare(cookie.key, KeyField.CREATE_REVISION, cookie.create_revision)
        if not (await ledgers.metadata.txn((same,), (Put(DRAINING + bookie, b""),))).succeeded:
            raise _unknown(bookie)
        note(f"bookie {name!r} is being emptied")
        if wait:
            await _wait(ledgers, bookie, cookie)

    in_cluster(cluster_settings(metadata_address, config_file), work)


def _unknown(name: BookieId) -> Failure:
    return Failure(f"there is no bookie {name!r} in this cluster: `gnomon bookie list` shows all", Exit.CONFLICT)


async def _checked(ledgers: Ledgers, name: BookieId) -> KeyValue:
    """The cookie of a bookie that can leave.

    Raises:
        Failure: it is not a member, or there is no other bookie for its entries.
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
                    f" other one accepts entries in place of {name!r}: start another first",
                    Exit.CONFLICT,
                )
    return cookie


async def _wait(ledgers: Ledgers, name: BookieId, cookie: KeyValue) -> None:
    """Reports the number of ledgers that still name the bookie, until its membership ends."""
    told = None
    while True:
        stored = await ledgers.metadata.get(cookie.key)
        if stored is None or stored.create_revision != cookie.create_revision:
            break
        left = sum(name in record.bookies for _, record in await ledgers.list())
        if left != told:
            note(f"{left} ledgers still name bookie {name!r}")
            told = left
        await trio.sleep(PROGRESS_SECONDS)
    note(f"bookie {name!r} is no member any more: nothing needs its disk")
