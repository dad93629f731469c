"""The entry point: which commands there are, and how whatever goes wrong ends the process.

A command's module is imported when the command is used, so that `gnomon --help` starts nothing but click.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click

STDERR = 2


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

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The program; its standard streams are what they were when it began, or nothing."""
        _fill_standard_descriptors()
        _keep_nothing_for_stderr()
        return super().__call__(*args, **named)

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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prints the help or the version, where that is asked for."""
        with _told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        with _told(ctx):
            return super().invoke(ctx)


@contextmanager
def _told(ctx: click.Context) -> Generator[None]:
    """Turns what went wrong into one line and the exit code of `gnomon.cli.exit`; a bug keeps its traceback."""
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except BaseException as error:
        if _holds(error, BrokenPipeError):
            _drop_output()  # the reader has had enough
            ctx.exit()
        if _holds(error, KeyboardInterrupt):
            raise click.Abort from None
        from gnomon.cli.exit import failure_of

        failure = failure_of(error)
        if failure is None:
            raise
        click.echo(f"Error: {failure}", err=True)
        _flush_output()
        ctx.exit(int(failure.code))


def _fill_standard_descriptors() -> None:
    """Opens /dev/null where one of the three is closed: what is opened next would get its number, and be written to."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)


def _keep_nothing_for_stderr() -> None:
    """What cannot be written there is gone: Python would keep it, try again at exit, and fail the process by that."""
    old = sys.stderr
    if old is not None:
        raw = io.FileIO(STDERR, "wb", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=True, write_through=True)


def _flush_output() -> None:
    """What cannot be written has been told, and is not tried once more at exit."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
