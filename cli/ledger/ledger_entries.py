"""`gnomon ledger read`, `tail` and `append`: entries of a ledger to standard output, and from standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import click
import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import OpenMode
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.ledgers import follow
from gnomon.cli.ledger.ledger_place import Found, LedgerPlace, check_may_change, password_option, place_options
from gnomon.cli.options import COUNT, ENTRY, TEXT
from gnomon.cli.output import note
from gnomon.cli.signals import stopping_on_signals
from gnomon.cli.streams import check_input, check_reader, writes_output

READ_ENTRIES = 256
INPUT_BYTES = 1 << 16
PENDING_ENTRIES_MAX = 1000
READER_SECONDS = 0.1

format_option = click.option(
    "--format",
    type=click.Choice(["text", "hex", "raw"]),
    default="text",
    show_default=True,
    help="One line of text or hex per entry, or the bytes alone.",
)


@click.command()
@click.argument("name", type=TEXT)
@click.option("--from", "first", type=ENTRY, help="First entry; the ledger's first unless given.")
@click.option("--to", "last", type=ENTRY, help="Last entry, inclusive; the ledger's last unless given.")
@format_option
@password_option
@place_options
@writes_output
def read(name: str, first: int | None, last: int | None, format: str, password: bytes, place: LedgerPlace) -> None:
    """Write entries of the ledger NAME to standard output; their digests are checked."""
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}")

    async def work(found: Found) -> None:
        opened = await found.to_read(name, password)
        begin = opened.start_entry if first is None else first
        end = opened.last_add_confirmed if last is None else last
        if begin > end:
            note(_where_it_ends(opened))
        for at in range(begin, end + 1, READ_ENTRIES):
            for payload in await opened.read(EntryId(at), EntryId(min(end, at + READ_ENTRIES - 1))):
                sys.stdout.buffer.write(_formatted(payload, format))
        sys.stdout.buffer.flush()

    place.run(work)


def _where_it_ends(opened: Ledger) -> str:
    last = opened.last_add_confirmed
    if last < opened.start_entry:
        return f"ledger {opened.name!r} has no entries"
    return f"ledger {opened.name!r} has entries {opened.start_entry} to {last}: there is nothing to read"


def _formatted(payload: bytes, format: str) -> bytes:
    if format == "raw":
        return payload
    return (payload.hex().encode() if format == "hex" else payload) + b"\n"


@click.command()
@click.argument("name", type=TEXT)
@click.option("--from", "first", type=ENTRY, help="First entry; the next one appended unless given.")
@click.option("--count", type=COUNT, help="End after this many.")
@format_option
@password_option
@place_options
@writes_output
def tail(name: str, first: int | None, count: int | None, format: str, password: bytes, place: LedgerPlace) -> None:
    """Write entries of the ledger NAME to standard output as they are confirmed, until interrupted or nobody reads.

    Does not fence the writer. Ends by itself if the ledger is sealed.
    """
    if not place.cluster:
        raise click.UsageError("nobody can append to a data directory that is read here: give --metadata, or use read")

    async def write(found: Found) -> None:
        opened = await found.to_read(name, password)
        at = EntryId(opened.last_add_confirmed + 1) if first is None else EntryId(first)
        seen = 0
        async for _, payload in follow(opened, at):
            sys.stdout.buffer.write(_formatted(payload, format))
            sys.stdout.buffer.flush()
            seen += 1
            if seen == count:
                return

    async def work(found: Found) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_check_reader_regularly)
            await write(found)
            nursery.cancel_scope.cancel()

    place.run(stopping_on_signals(work))


async def _check_reader_regularly() -> NoReturn:
    """Raises BrokenPipeError soon after the reader of standard output is gone."""
    while True:
        check_reader()
        await trio.sleep(READER_SECONDS)


@click.command()
@click.argument("name", type=TEXT)
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Append this whole file as one entry, instead of standard input; may be repeated.",
)
@password_option
@place_options
def append(name: str, files: tuple[Path, ...], password: bytes, place: LedgerPlace) -> None:
    """Append each line of standard input as an entry to the ledger NAME, under a new session.

    Any other writer is fenced.
    """
    check_may_change(name)
    if not files:
        check_input()

    async def work(found: Found) -> tuple[int, EntryId]:
        opened = await found.ledgers.open(name, OpenMode.O_APPEND, password=password)
        try:
            count = await _append_all(opened, _files(files) if files else _lines())
        except (
            LedgerError,
            KeyboardInterrupt,
            trio.Cancelled,
        ):  # Cancelled: another task was interrupted
            note(f"the last entry of ledger {name!r} known to be confirmed is {opened.last_add_confirmed}")
            raise
        await opened.close()
        return count, opened.last_add_confirmed

    count, last = place.run(work)
    note(f"appended {count} entries to ledger {name!r}; its last is {last}")


async def _files(paths: tuple[Path, ...]) -> AsyncIterator[list[bytes]]:
    for path in paths:
        yield [path.read_bytes()]


async def _lines() -> AsyncIterator[list[bytes]]:
    """Lines of standard input, as they arrive; the event loop runs meanwhile.

    The lines are read without Python's buffer: a thread that remains after an interrupt would keep the buffer's lock,
    which Python needs at its end.
    """
    stdin = sys.stdin.fileno()
    rest = b""
    while chunk := await trio.to_thread.run_sync(os.read, stdin, INPUT_BYTES, abandon_on_cancel=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines
    if rest:
        yield [rest]


async def _append_all(opened: Ledger, entries: AsyncIterator[list[bytes]]) -> int:
    """Appends in order, a limited number at a time; returns once all are durable."""
    count = 0
    async for payloads in entries:
        for payload in payloads:
            opened.append((payload,), lambda _entry, _error: None)
            count += 1
            if count % PENDING_ENTRIES_MAX == 0:
                await opened.drained()
    await opened.drained()
    return count
