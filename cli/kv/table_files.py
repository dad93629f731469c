"""`gnomon kv export` and `gnomon kv import`: tables to files, and back.

1. With `-`, the table goes through a temporary file: nothing is sent to standard output before the export is whole, and
   nothing is written to a table before all of standard input was checked.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.native.native_client import CODES, with_native_client
from gnomon.cli.options import TOPIC, native_option
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.cli.streams import check_input
from gnomon.client.client import NativeClient
from gnomon.client.errors import ImportIncomplete, NativeError, TableNotEmpty
from gnomon.client.tables.table_export import TableExport
from gnomon.client.tables.table_import import TableImport
from gnomon.log.tables.export_form import ExportDamaged

T = TypeVar("T")

STREAM = "-"
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("export")
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("file", type=FILE)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@native_option
@output_option
def export_table(topic: str, file: Path, overwrite: bool, native: str, output: str) -> None:
    """Write the table TOPIC to FILE, `-` for standard output: the state of each partition at one revision.

    FILE appears only once it is whole. A snapshot of the table is taken for it.
    """
    if str(file) != STREAM:
        found = _exported(native, topic, file, overwrite=overwrite)
        rows = [{**each._asdict(), "digest": each.digest.hex()} for each in found.partitions]
        show_list(rows, ("partition", "revision", "keys", "bytes_used", "digest"), output)
        return
    with _temporary() as path:
        found = _exported(native, topic, path, overwrite=True)
        with path.open("rb") as whole:
            shutil.copyfileobj(whole, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    note(f"exported {sum(each.keys for each in found.partitions)} keys of table {topic!r}")


@click.command("import")
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("file", type=FILE)
@native_option
@output_option
def import_table(topic: str, file: Path, native: str, output: str) -> None:
    """Write the entries of FILE, `-` for standard input, into the table TOPIC, which must be empty.

    FILE is checked before anything is written, and the table is compared with it in the end. The table may have another
    engine and other partitions than the one that was exported.
    """
    if str(file) != STREAM:
        found = _imported(native, topic, file)
    else:
        check_input()
        with _temporary() as path:
            with path.open("wb") as whole:
                shutil.copyfileobj(sys.stdin.buffer, whole)
            found = _imported(native, topic, path)
    show_record({"keys": found.keys, "left_out": found.left_out, "expired": found.expired}, output)
    if found.left_out:
        note(f"{found.left_out} keys were left out: their time to live is over")
    if found.expired:
        note(f"{found.expired} keys have expired since they were written: their values were not compared")


def _exported(native: str, topic: str, path: Path, *, overwrite: bool) -> TableExport:
    async def work(client: NativeClient) -> TableExport:
        return await client.table(topic).export_to(path, overwrite=overwrite)

    try:
        return with_native_client(native, work)
    except FileExistsError as error:
        raise Failure(f"{error.filename} exists: give --overwrite to replace it", Exit.CONFLICT) from None


def _imported(native: str, topic: str, path: Path) -> TableImport:
    async def work(client: NativeClient) -> TableImport:
        return await client.table(topic).import_from(path)

    return _refused_as(native, work)


def _refused_as(native: str, work: Callable[[NativeClient], Awaitable[T]]) -> T:
    """The result of an import, whose own errors are failures with exit codes."""

    async def run(client: NativeClient) -> T | Failure:
        try:
            return await work(client)
        except ExportDamaged as error:
            return Failure(f"nothing was imported: {error}")
        except TableNotEmpty as error:
            return Failure(str(error), Exit.CONFLICT)
        except ImportIncomplete as error:
            return Failure(str(error), _code(error.__cause__))

    found = with_native_client(native, run)
    if isinstance(found, Failure):
        raise found
    return found


def _code(cause: BaseException | None) -> Exit:
    """The exit code of an import that has failed half way."""
    if not isinstance(cause, NativeError):
        return Exit.FAILED
    return next(code for kind, code, _ in CODES if isinstance(cause, kind))


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gnomon-") as folder:
        yield Path(folder) / "table"
