"""The entry point: which commands there are, and how whatever goes wrong ends the process.

A command's module is imported when the command is used, so that `gnomon --help` starts nothing but click.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, NamedTuple

import click


class Place(NamedTuple):
    """Where a command lives, and its line in `gnomon --help`."""

    module: str
    name: str
    line: str


COMMANDS = {
    "standalone": Place("standalone", "standalone", "Run metadata service, bookie and broker in one process."),
    "metadata": Place("metadata", "metadata", "Run the metadata service of a cluster."),
    "bookie": Place("bookie", "bookie", "Run a bookie of a cluster, or list and decommission bookies."),
    "broker": Place("broker", "broker", "Run a broker of a cluster."),
    "cluster": Place("cluster", "cluster", "Run a whole cluster on this machine, for trying."),
    "topic": Place("topic", "topic", "Create, list, describe, alter and delete topics."),
    "group": Place("group", "group", "List, describe, reset and delete consumer groups."),
    "produce": Place("records", "produce", "Write the lines of standard input to a topic."),
    "consume": Place("records", "consume", "Write the records of a topic to standard output."),
    "ledger": Place("ledger", "ledger", "Create, append to, read, follow, shrink, recover, seal and delete ledgers."),
    "doctor": Place("doctor", "doctor", "Check this machine, a data directory and a broker."),
    "config": Place("config", "config", "Show every setting, and where its value comes from."),
    "completion": Place("completion", "completion", "Print the completion script of a shell."),
}


class Commands(click.Group):
    """A group whose commands are imported on first use; errors that an operator can act on end it in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports it."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(import_module(f"gnomon.cli.{place.module}"), place.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.line) for name, place in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Turns what went wrong into one line and the exit code of `gnomon.cli.exit`; a bug keeps its traceback."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except BaseException as error:
            if _holds(error, BrokenPipeError):
                # The reader has had enough. Nothing may be flushed into the pipe at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return None
            if _holds(error, KeyboardInterrupt):
                raise click.Abort from None
            from gnomon.cli.exit import failure_of

            failure = failure_of(error)
            if failure is None:
                raise
            click.echo(f"Error: {failure}", err=True)
            ctx.exit(int(failure.code))


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    return isinstance(error, kind) or (isinstance(error, BaseExceptionGroup) and error.subgroup(kind) is not None)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gnomon", message="gnomon %(version)s")
def main() -> None:
    """A Kafka-compatible log broker.

    Data goes to standard output, everything else to standard error. Exit codes: 0 ok, 1 failed, 2 usage,
    3 unreachable, 4 denied, 5 missing or conflict.
    """


if __name__ == "__main__":
    main(prog_name="gnomon")
