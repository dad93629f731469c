"""The entry point: the table of commands, and the exit of the process after any error.

A command's module is imported when the command is used, so that `gnomon --help` loads nothing but click.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from gnomon.cli.names.suggestion import CommandGroup

STDERR = 2


class CommandPlace(NamedTuple):
    """The module of a command, and its line in `gnomon --help`."""

    module: str
    name: str
    line: str


COMMANDS = {
    "standalone": CommandPlace("standalone", "standalone", "Run metadata service, bookie and broker in one process."),
    "metadata": CommandPlace("metadata", "metadata", "Run the metadata service of a cluster."),
    "bookie": CommandPlace("bookie", "bookie", "Run a bookie of a cluster, or list and decommission bookies."),
    "broker": CommandPlace("broker", "broker", "Run a broker of a cluster, or list the brokers."),
    "cluster": CommandPlace(
        "cluster.cluster", "cluster", "Show the state of a cluster, or run a whole one for trying."
    ),
    "topic": CommandPlace(
        "kafka.topic", "topic", "Create, list, describe, alter and delete topics, and delete their records."
    ),
    "group": CommandPlace("kafka.group", "group", "List, describe, reset and delete consumer groups."),
    "subscription": CommandPlace(
        "native.subscription", "subscription", "List, describe, move and delete durable subscriptions."
    ),
    "produce": CommandPlace("kafka.produce", "produce", "Write the lines of standard input to a topic."),
    "consume": CommandPlace("kafka.consume", "consume", "Write the records of a topic to standard output."),
    "write": CommandPlace("native.write", "write", "Write standard input as one record, if the log ends as expected."),
    "kv": CommandPlace("kv.kv", "kv", "Create tables, and read and write their keys."),
    "fence": CommandPlace("native.fence", "fence", "Give a partition a fencing token."),
    "position": CommandPlace("native.end_of_log", "position", "Show the last record of a partition."),
    "bench": CommandPlace(
        "bench.bench", "bench", "Measure the rates and latencies that one client gets from a broker."
    ),
    "ledger": CommandPlace(
        "ledger.ledger", "ledger", "Create, append to, read, follow, shrink, recover, seal and delete ledgers."
    ),
    "sink": CommandPlace("sink", "sink", "List, show, finish and forget the writers of Spark's sink."),
    "pipeline": CommandPlace(
        "pipeline.pipeline", "pipeline", "Run and check pipelines between topics, tables and files, and audit topics."
    ),
    "doctor": CommandPlace("doctor.doctor", "doctor", "Check this machine, a data directory, a cluster and a broker."),
    "profile": CommandPlace(
        "profile.profile", "profile", "Keep named sets of addresses, and choose the one that commands use."
    ),
    "config": CommandPlace("config", "config", "Show every setting, and where its value comes from."),
    "completion": CommandPlace("names.completion", "completion", "Print the completion script of a shell."),
}


class Commands(CommandGroup):
    """A group whose commands are imported on first use; errors that an operator can act on end it in one line."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Runs the program; its standard streams are those it was started with, or null devices."""
        _fill_standard_descriptors()
        _keep_nothing_for_stderr()
        return super().__call__(*args, **named)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a command."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(_imported(f"gnomon.cli.{place.module}"), place.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.line) for name, place in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes a command from the table, or an option."""
        found = [
            CompletionItem(name, help=place.line) for name, place in COMMANDS.items() if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prints the help or the version if asked for."""
        with _told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        with _told(ctx):
            return super().invoke(ctx)


def _imported(name: str) -> ModuleType:
    """Imports a module without passes of the garbage collector, and sets the objects aside, since they stay.

    A start of a standalone node takes a tenth less time.
    """
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _told(ctx: click.Context) -> Generator[None]:
    """Turns an error into one line and the exit code of `gnomon.cli.exit`; a bug keeps its traceback."""
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except BaseException as error:
        if _holds(error, BrokenPipeError):
            _drop_output()  # the reader is gone
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
    """Opens /dev/null for each closed standard stream: the next opened file would get its number and be written to."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)


def _keep_nothing_for_stderr() -> None:
    """Makes standard error unbuffered: Python would keep text that cannot be written, retry at exit, and fail the
    process."""
    old = sys.stderr
    if old is not None:
        raw = io.FileIO(STDERR, "wb", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=True, write_through=True)


def _flush_output() -> None:
    """Drops output that cannot be written: the error was reported, and Python must not retry at exit."""
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
