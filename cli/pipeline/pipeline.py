"""`gnomon pipeline`: the group of commands for pipelines between topics and tables, and for audits of topics.

A command's module is imported when the command is used: some of them need packages that others do not.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module

import click

from gnomon.cli.names.suggestion import CommandGroup

SUBCOMMANDS = {"audit": "Check what is stored for topics: every copy, and the log that the entries make."}
"""By name the line in `gnomon pipeline --help`; the module and its command have the same name."""


class ImportedCommands(MutableMapping[str, click.Command]):
    """The commands of the table, each imported when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in SUBCOMMANDS:
            raise KeyError(name)
        command: click.Command = getattr(import_module(f"gnomon.cli.pipeline.{name}"), name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(SUBCOMMANDS)

    def __len__(self) -> int:
        return len(SUBCOMMANDS)

    def __setitem__(self, name: str, command: click.Command) -> None:
        raise TypeError(f"command {name!r} belongs into SUBCOMMANDS")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"command {name!r} belongs into SUBCOMMANDS")


class PipelineCommands(CommandGroup):
    """A group whose help imports no command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(cls=PipelineCommands, commands=ImportedCommands())
def pipeline() -> None:
    """Run and check pipelines between topics and tables, and audit topics."""
