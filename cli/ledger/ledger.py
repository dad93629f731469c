"""`gnomon ledger`: the ledgers of a cluster, or of a data directory that no broker has open."""

from __future__ import annotations

from typing import Any

import click
import trio

from gnomon.bookie.errors import LedgerError, NoSuchLedger
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import OpenMode
from gnomon.bookie.ledgers.copies import read_entry
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.record import LEDGERS, DigestType, LedgerRecord, Quorum, decode_record, ledger_key
from gnomon.cli.ledger.ledger_entries import append, read, tail
from gnomon.cli.ledger.ledger_place import Found, LedgerPlace, check_may_change, password_option, place_options
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import COUNT, ENTRY, TEXT, pairs
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.metadata.client import KeyValue
from gnomon.runtime.world import WorldError

SHOWN_AT_ONCE = 32
"""Ledgers whose bookies are asked at the same time."""


@click.group(cls=CommandGroup)
def ledger() -> None:
    """Create, append to, read, follow, shrink, recover, seal and delete ledgers.

    They are those of a cluster (--metadata), or of a data directory (--data-dir), which must not be in use. Ledgers
    under `topics/` and `subscriptions/` belong to Kafka partitions and to subscriptions: they can be read, not changed.
    """


@ledger.command("list")
@click.argument("prefix", default="")
@place_options
@output_option
def list_all(prefix: str, place: LedgerPlace, output: str) -> None:
    """List the ledgers whose name begins with PREFIX."""

    async def work(found: Found) -> list[dict[str, Any]]:
        stored = (await found.ledgers.metadata.range(ledger_key(prefix))).items
        rows: list[dict[str, Any]] = [{} for _ in stored]
        limit = trio.CapacityLimiter(SHOWN_AT_ONCE)

        async def fill(row: dict[str, Any], item: KeyValue) -> None:
            async with limit:
                row.update(await _facts(found, item))

        async with trio.open_nursery() as nursery:
            for row, item in zip(rows, stored, strict=True):
                nursery.start_soon(fill, row, item)
        return rows

    show_list(place.run(work), ("ledger", "id", "state", "session", "start_entry", "last_entry", "bytes"), output)


async def _facts(found: Found, stored: KeyValue) -> dict[str, Any]:
    record, ledger_id = decode_record(stored.value), LedgerId(stored.create_revision)
    last = await found.end_of(ledger_id, record)
    return {
        "ledger": stored.key.removeprefix(LEDGERS),
        "id": ledger_id,
        "state": record.state.value,
        "session": record.session,
        "start_entry": record.start_entry,
        "last_entry": last if last >= record.start_entry else None,
        "bytes": await _length_bytes(found, ledger_id, record, last),
    }


async def _length_bytes(found: Found, ledger_id: LedgerId, record: LedgerRecord, last: EntryId) -> int:
    """Payload bytes of all entries ever appended; read from the last entry, if it is readable."""
    if last >= record.start_entry and not record.sealed:
        try:
            return (await read_entry(found.ledgers.bookies, ledger_id, record, last)).length_bytes
        except (LedgerError, WorldError):
            pass
    return record.length_bytes


@ledger.command()
@click.argument("name", type=TEXT)
@place_options
@output_option
def show(name: str, place: LedgerPlace, output: str) -> None:
    """Show the record, the fragments and the ends of the ledger NAME."""

    async def work(found: Found) -> dict[str, Any]:
        stored = await found.ledgers.metadata.get(ledger_key(name))
        if stored is None:
            raise NoSuchLedger(f"there is no ledger {name!r}")
        record = decode_record(stored.value)
        return {
            **await _facts(found, stored),
            "quorum": record.quorum._asdict(),
            "digest": record.digest_type.value,
            "password": bool(record.password_digest),
            "record_version": stored.version,
            "properties": record.properties,
            "fragments": [
                {"first_entry": at.first_entry, "session": at.session, "bookies": list(at.bookies)}
                for at in record.fragments
            ],
        }

    show_record(place.run(work), output)


@ledger.command()
@click.argument("name", type=TEXT)
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property in its record; may be repeated."
)
@click.option("--ensemble-size", type=COUNT, help="Bookies that hold it; 3 in a cluster unless given.")
@click.option("--write-quorum", type=COUNT, help="Copies of each entry; the ensemble size unless given.")
@click.option("--ack-quorum", type=COUNT, help="Copies that confirm an entry; most of them unless given.")
@click.option(
    "--digest",
    type=click.Choice([kind.value for kind in DigestType]),
    default=DigestType.CRC32C.value,
    show_default=True,
    help="`mac` is keyed from the password.",
)
@password_option
@place_options
def create(
    name: str,
    properties: tuple[str, ...],
    ensemble_size: int | None,
    write_quorum: int | None,
    ack_quorum: int | None,
    digest: str,
    password: bytes,
    place: LedgerPlace,
) -> None:
    """Create the ledger NAME."""
    check_may_change(name)
    given = pairs(properties, "--property")
    size = ensemble_size or place.quorum.ensemble_size
    copies = write_quorum or size
    quorum = Quorum(size, copies, ack_quorum or copies // 2 + 1)
    place.check(quorum)
    digest_type = DigestType(digest)
    if digest_type is DigestType.MAC and not password:
        raise click.UsageError("--digest mac is keyed from a password: give --password-file")

    async def work(found: Found) -> int:
        opened = await found.ledgers.open(
            name,
            OpenMode.O_CREATE,
            password=password,
            quorum=quorum,
            digest_type=digest_type,
            properties=dict(given),
        )
        return opened.id

    note(f"created ledger {name!r} with id {place.run(work, create=True)}")


@ledger.command()
@click.argument("name", type=TEXT)
@click.argument("end", type=ENTRY)
@click.option("--force", is_flag=True, help="Free their bytes now, not at the next collection.")
@password_option
@place_options
def shrink(name: str, end: int, force: bool, password: bytes, place: LedgerPlace) -> None:
    """Delete the entries of the ledger NAME below END, permanently."""
    check_may_change(name)

    async def work(found: Found) -> EntryId:
        opened = await found.to_read(name, password)
        await opened.shrink(EntryId(end), force)
        return opened.start_entry

    note(f"ledger {name!r} starts at entry {place.run(work)}")


@ledger.command()
@click.argument("name", type=TEXT)
@password_option
@place_options
@output_option
def recover(name: str, password: bytes, place: LedgerPlace, output: str) -> None:
    """Claim the ledger NAME: fence its writer, find its end, make the tail durable; and show the end."""
    check_may_change(name)

    async def work(found: Found) -> dict[str, Any]:
        opened = await found.ledgers.open(name, OpenMode.O_APPEND, password=password)
        await opened.close()
        return _end(opened)

    show_record(place.run(work), output)


def _end(opened: Ledger) -> dict[str, Any]:
    last = opened.last_add_confirmed
    return {
        "ledger": opened.name,
        "id": opened.id,
        "session": opened.session,
        "start_entry": opened.start_entry,
        "last_entry": last if last >= opened.start_entry else None,
        "bytes": opened.length_bytes,
    }


@ledger.command()
@click.argument("name", type=TEXT)
@password_option
@place_options
def seal(name: str, password: bytes, place: LedgerPlace) -> None:
    """Finish the ledger NAME: its writer is fenced, and it accepts no more entries."""
    check_may_change(name)

    async def work(found: Found) -> EntryId:
        opened = await found.ledgers.open(name, OpenMode.O_APPEND, password=password)
        await opened.seal()
        return opened.last_add_confirmed

    note(f"sealed ledger {name!r}; its last entry is {place.run(work)}")


@ledger.command()
@click.argument("name", type=TEXT)
@password_option
@place_options
def delete(name: str, password: bytes, place: LedgerPlace) -> None:
    """Delete the ledger NAME with its entries."""
    check_may_change(name)

    async def work(found: Found) -> None:
        await found.ledgers.delete(name, password=password)

    place.run(work)
    note(f"deleted ledger {name!r}")


ledger.add_command(read)
ledger.add_command(tail)
ledger.add_command(append)
