"""The output of commands: data to standard output as a table, JSON or YAML, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from gnomon.cli.streams import writes_output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row: TypeAlias = Mapping[str, Any]

FORMATS = ("table", "json", "yaml")
# Without a terminal, nothing is folded or cut.
_PIPE_COLUMNS = 100_000


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--output` of a command that shows data on standard output."""
    return click.option(
        "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Format of the data."
    )(writes_output(command))


def show_list(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Writes rows that all have `columns`: a table with one line each, or a list of objects."""
    if output == "table":
        console = _console()
        console.print(_table(rows, columns))
    else:
        _dump([{name: row[name] for name in columns} for row in rows], output)


def show_record(record: Row, output: str) -> None:
    """Writes one record; in a table, its lists of rows follow below, each under its name."""
    if output != "table":
        _dump(record, output)
        return
    from rich.table import Table

    console = _console()
    head = Table(box=None, show_header=False, pad_edge=False)
    tables = {name: value for name, value in record.items() if _is_rows(value)}
    for name, value in record.items():
        if name not in tables:
            head.add_row(_title(name), _cell(value))
    console.print(head)
    for name, rows in tables.items():
        console.print()
        console.print(f"{_title(name)}:", highlight=False)
        console.print(_table(rows, list(rows[0])))


def show_records(records: Sequence[Row], output: str) -> None:
    """Writes several records, in a table with a blank line between them."""
    if output != "table":
        _dump(list(records), output)
        return
    for number, record in enumerate(records):
        if number:
            click.echo()
        show_record(record, output)


def note(text: str) -> None:
    """Writes a line that is not data to standard error; a failed write is ignored, since the command's work is done."""
    with suppress(OSError):
        click.echo(text, err=True)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _dump(data: object, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    import yaml

    click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def _table(rows: Sequence[Row], columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        numbers = bool(rows) and all(type(row[name]) in (int, float, NoneType) for row in rows)
        table.add_column(_title(name).upper(), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns))
    return table


def _title(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: object) -> str:
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_cell(item)}" for name, item in value.items())
    return str(value)
