"""`gnomon sink`: the writers of Spark's sink, over Kafka's protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
import trio

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import TEXT, bootstrap_option
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.client.addresses import parse_addresses
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import Unreachable

if TYPE_CHECKING:
    from gnomon.spark.writing.writers import Writers, WriterState

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
LISTED = ("writer", "decision", "query", "batch", "decided", "applied")


@click.group(cls=CommandGroup)
def sink() -> None:
    """List, show, finish and forget the writers of Spark's sink."""


@sink.command("list")
@bootstrap_option
@output_option
def list_writers(bootstrap: str, output: str) -> None:
    """List all writers with their last decisions."""

    async def work(writers: Writers) -> list[WriterState]:
        return await writers.states()

    show_list([_record(state) for state in _with_writers(bootstrap, work)], LISTED, output)


@sink.command()
@click.argument("writer", type=TEXT)
@bootstrap_option
@output_option
def show(writer: str, bootstrap: str, output: str) -> None:
    """Show the last decision of WRITER, and its rows if they are not all written."""
    state = _with_writers(bootstrap, lambda writers: writers.state(writer))
    show_record({**_record(state), "rows": _rows(state)}, output)


@sink.command()
@click.argument("writer", type=TEXT)
@bootstrap_option
def finish(writer: str, bootstrap: str) -> None:
    """Write the rows that WRITER has decided, as its next driver would."""
    _with_writers(bootstrap, lambda writers: writers.finish(writer))
    note(f"every row that writer {writer!r} has decided is written")


@sink.command()
@click.argument("writer", type=TEXT)
@bootstrap_option
@output_option
def forget(writer: str, bootstrap: str, output: str) -> None:
    """Give up the rows that WRITER has decided and that cannot be written, and show them."""
    before = _with_writers(bootstrap, lambda writers: writers.forget(writer))
    show_list(_rows(before), ("topic", "partition", "rows", "written", "problem"), output)


def _record(state: WriterState) -> dict[str, Any]:
    last = state.decision
    decided = datetime.fromtimestamp(state.decided_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "writer": state.writer,
        "decision": None if last is None else last.number,
        "query": None if last is None else last.query,
        "batch": None if last is None else last.batch,
        "decided": None if last is None else decided,
        "applied": state.is_applied,
    }


def _rows(state: WriterState) -> list[dict[str, Any]]:
    return [
        {**each.target._asdict(), "rows": each.rows, "written": each.delivered, "problem": each.problem}
        for each in state.rows
    ]


def _with_writers(bootstrap: str, work: Callable[[Writers], Awaitable[T]]) -> T:
    try:
        from gnomon.spark.decisions import UnreadableProposal
        from gnomon.spark.writing.delivery import DeliveryFailed
        from gnomon.spark.writing.writer_topic import StagedDamaged
        from gnomon.spark.writing.writers import NoSuchWriter, Writers
    except ModuleNotFoundError as error:
        raise Failure(
            f"gnomon sink needs the package {error.name}, which is not installed: pip install 'gnomon[spark]'",
            Exit.USAGE,
        ) from None

    async def run() -> T:
        addresses = parse_addresses(bootstrap)
        async with (
            open_trio_world() as world,
            KafkaBrokers(world, addresses, "gnomon-cli", patience_seconds=PATIENCE_SECONDS) as cluster,
        ):
            return await work(Writers(cluster))

    try:
        return trio.run(run)
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    except NoSuchWriter as error:
        raise Failure(f"{error}: `gnomon sink list` shows all writers", Exit.CONFLICT) from None
    except Unreachable as error:
        raise Failure(f"{error}: check that this is the address of a Kafka broker", Exit.UNREACHABLE) from None
    except (RequestRefused, DeliveryFailed, StagedDamaged, UnreadableProposal) as error:
        raise Failure(str(error)) from None
