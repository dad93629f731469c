"""`gnomon ledger`: the ledgers of a data directory that no broker has open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledger import Ledger, OpenMode, list_ledgers, open_ledger
from gnomon.bookie.record import ledger_key
from gnomon.broker.partition.chain import PARTITIONS
from gnomon.broker.stores import Stores
from gnomon.cli.data_directory import in_stores, open_to_the_end
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.options import pairs
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.runtime.settings import Settings

READ_ENTRIES = 256
PENDING_ENTRIES_MAX = 1000


@click.group()
def ledger() -> None:
    """Look into, create, append to and shrink the ledgers of a data directory.

    The directory must not be in use: stop its broker first. Ledgers under `topics/` are the segments of Kafka
    partitions and can be read, not changed.
    """


def stores_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--data-dir` and `--config`."""
    return data_dir_option(config_option(command))


def _settings(data_dir: str | None, config_file: Path | None) -> Settings:
    return read_settings(config_file, data_dir=data_dir).settings


def _of_its_own(name: str) -> None:
    if name.startswith(PARTITIONS):
        raise Failure(f"ledger {name!r} belongs to a Kafka partition: change it through its topic", Exit.CONFLICT)
    if not name:
        raise click.UsageError("a ledger needs a name")


@ledger.command("list")
@click.argument("prefix", default="")
@stores_options
@output_option
def list_all(prefix: str, data_dir: str | None, config_file: Path | None, output: str) -> None:
    """List the ledgers whose name begins with PREFIX."""

    async def work(stores: Stores) -> list[dict[str, Any]]:
        names = [name for name, _ in await list_ledgers(stores.metadata, prefix)]
        return [_facts(stores, await open_to_the_end(stores, name)) for name in names]

    rows = in_stores(_settings(data_dir, config_file), work)
    show_list(rows, ("ledger", "id", "state", "session", "start_entry", "last_entry", "bytes"), output)


def _facts(stores: Stores, opened: Ledger) -> dict[str, Any]:
    last = opened.last_add_confirmed
    return {
        "ledger": opened.name,
        "id": opened.id,
        "state": opened.record.state.value,
        "session": opened.session,
        "start_entry": opened.start_entry,
        "last_entry": last if last >= opened.start_entry else None,
        "bytes": _length_bytes(stores, opened),
    }


def _length_bytes(stores: Stores, opened: Ledger) -> int:
    """Payload bytes of all entries ever appended; the last entry knows, where it can be read."""
    last = opened.last_add_confirmed
    if last < opened.start_entry:
        return opened.length_bytes
    try:
        with stores.store.view() as view:
            return view.entry(opened.id, last).length_bytes
    except LedgerError:
        return opened.length_bytes


@ledger.command()
@click.argument("name")
@stores_options
@output_option
def show(name: str, data_dir: str | None, config_file: Path | None, output: str) -> None:
    """Show the record, the fragments and the ends of the ledger NAME."""

    async def work(stores: Stores) -> dict[str, Any]:
        opened = await open_to_the_end(stores, name)
        record, stored = opened.record, await stores.metadata.get(ledger_key(name))
        return {
            **_facts(stores, opened),
            "quorum": record.quorum._asdict(),
            "digest": record.digest_type.value,
            "password": bool(record.password_digest),
            "record_version": None if stored is None else stored.version,
            "properties": record.properties,
            "fragments": [
                {"first_entry": at.first_entry, "session": at.session, "bookies": list(at.bookies)}
                for at in record.fragments
            ],
        }

    show_record(in_stores(_settings(data_dir, config_file), work), output)


@ledger.command()
@click.argument("name")
@click.option("--from", "first", type=click.IntRange(0), help="First entry; the ledger's first unless given.")
@click.option("--to", "last", type=click.IntRange(0), help="Last entry, inclusive; the ledger's last unless given.")
@click.option(
    "--format",
    type=click.Choice(["text", "hex", "raw"]),
    default="text",
    show_default=True,
    help="A line of text or hex each, or the bytes alone.",
)
@stores_options
def read(
    name: str, first: int | None, last: int | None, format: str, data_dir: str | None, config_file: Path | None
) -> None:
    """Write entries of the ledger NAME to standard output; their digests are checked."""

    async def work(stores: Stores) -> None:
        opened = await open_to_the_end(stores, name)
        begin = opened.start_entry if first is None else first
        end = opened.last_add_confirmed if last is None else last
        for at in range(begin, end + 1, READ_ENTRIES):
            for payload in await opened.read(EntryId(at), EntryId(min(end, at + READ_ENTRIES - 1))):
                sys.stdout.buffer.write(_formatted(payload, format))
        sys.stdout.buffer.flush()

    in_stores(_settings(data_dir, config_file), work)


def _formatted(payload: bytes, format: str) -> bytes:
    if format == "raw":
        return payload
    return (payload.hex().encode() if format == "hex" else payload) + b"\n"


@ledger.command()
@click.argument("name")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="Kept in its record.")
@stores_options
def create(name: str, properties: tuple[str, ...], data_dir: str | None, config_file: Path | None) -> None:
    """Create the ledger NAME."""
    _of_its_own(name)
    given = pairs(properties, "--property")

    async def work(stores: Stores) -> int:
        opened = await open_ledger(
            stores.metadata, stores.bookies, name, mode=OpenMode.O_CREATE, properties=dict(given)
        )
        return opened.id

    ledger_id = in_stores(_settings(data_dir, config_file), work, create=True)
    note(f"created ledger {name!r} with id {ledger_id}")


@ledger.command()
@click.argument("name")
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Append this whole file as one entry, instead of standard input; may be repeated.",
)
@stores_options
def append(name: str, files: tuple[Path, ...], data_dir: str | None, config_file: Path | None) -> None:
    """Append each line of standard input as an entry to the ledger NAME, under a new session."""
    _of_its_own(name)
    entries = (
        (path.read_bytes() for path in files) if files else (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    )

    async def work(stores: Stores) -> tuple[int, EntryId]:
        opened = await open_ledger(stores.metadata, stores.bookies, name, mode=OpenMode.O_APPEND)
        count = await _append_all(opened, entries)
        await opened.close()
        return count, opened.last_add_confirmed

    count, last = in_stores(_settings(data_dir, config_file), work)
    note(f"appended {count} entries to ledger {name!r}; its last is {last}")


async def _append_all(opened: Ledger, entries: Iterable[bytes]) -> int:
    """Appends in order, so many at a time; returns once all are durable."""
    count = 0
    for count, payload in enumerate(entries, 1):
        opened.append((payload,), lambda _entry, _error: None)
        if count % PENDING_ENTRIES_MAX == 0:
            await opened.drained()
    await opened.drained()
    return count


@ledger.command()
@click.argument("name")
@click.argument("end", type=click.IntRange(0))
@click.option("--force", is_flag=True, help="Free their bytes now, not at the next collection.")
@stores_options
def shrink(name: str, end: int, force: bool, data_dir: str | None, config_file: Path | None) -> None:
    """Give up the entries of the ledger NAME below END, for ever."""
    _of_its_own(name)

    async def work(stores: Stores) -> EntryId:
        opened = await open_to_the_end(stores, name)
        await opened.shrink(EntryId(end), force)
        return opened.start_entry

    start = in_stores(_settings(data_dir, config_file), work)
    note(f"ledger {name!r} starts at entry {start}")
