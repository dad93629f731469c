"""`gnomon kv`: creates tables, and reads and writes their keys."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
from confluent_kafka.admin import NewTopic

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka.attempts import Attempt, finish
from gnomon.cli.kafka.kafka_client import ANSWER_SECONDS, connect
from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.kv.table_files import export_table, import_table
from gnomon.cli.kv.table_list import list_tables
from gnomon.cli.kv.table_states import snapshot, status
from gnomon.cli.kv.texts import base64_option, given_bytes, shown_bytes, shown_entry, shown_txn
from gnomon.cli.kv.txn_document import parse_document
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import OFFSET, PARTITIONS, TOPIC, bootstrap_option, native_option
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.cli.streams import check_input
from gnomon.client.client import NativeClient
from gnomon.client.errors import CompareFailed
from gnomon.client.tables.table import Table
from gnomon.client.tables.table_watch import TableEvent
from gnomon.log.tables.table_entry import Page, TableEntry, TxnResult
from gnomon.log.tables.transaction_form import UnfitTransaction
from gnomon.wire.kafka.errors import ErrorCode

TTL = click.FloatRange(0.001)
REVISION = click.IntRange(-1)
ENGINE = "The place of the entries: the disk of the broker, or its memory."


@click.group(cls=CommandGroup)
def kv() -> None:
    """Create tables, and read and write their keys. A table is a topic with `gnomon.view=kv`."""


def _on(native: str, topic: str, work: Callable[[Table], Awaitable[object]]) -> object:
    """The result of `work` on a table; a comparison that failed ends the command with 5."""

    async def run(client: NativeClient) -> object:
        try:
            return await work(client.table(topic))
        except CompareFailed as error:
            return error

    found = with_native_client(native, run)
    if isinstance(found, CompareFailed):
        raise Failure(str(found), Exit.CONFLICT)
    return found


kv.add_command(status)
kv.add_command(snapshot)
kv.add_command(list_tables)
kv.add_command(export_table)
kv.add_command(import_table)


@kv.command()
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=PARTITIONS, default=1, show_default=True, help="Partitions; they cannot grow.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is left as it is, and no error.")
@click.option("--engine", type=click.Choice(["disk", "memory"]), default="disk", show_default=True, help=ENGINE)
@bootstrap_option
def create(name: str, partitions: int, if_not_exists: bool, engine: str, bootstrap: str) -> None:
    """Create the table NAME."""
    config = {"gnomon.view": "kv", "gnomon.view.engine": engine}
    new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config)
    admin = connect(bootstrap)  # it ends with its last reference
    future = admin.create_topics([new], request_timeout=ANSWER_SECONDS)[name]
    exists = (ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already: it is left as it is")
    done = f"created table {name!r} with {partitions} partitions"
    finish([Attempt(f"create table {name!r}", future, done, exists if if_not_exists else None)])


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("key")
@click.option("--stale", is_flag=True, help="An older value will do, as that of a broker that was replaced.")
@base64_option
@native_option
@output_option
def get(topic: str, key: str, stale: bool, as_base64: bool, native: str, output: str) -> None:
    """Show the newest value of KEY in the table TOPIC; the exit code is 5 if the key is absent."""
    wanted = given_bytes(key, as_base64)
    entry = _on(native, topic, lambda table: table.get(wanted, stale=stale))
    if entry is None:
        raise Failure(f"{key!r} is absent in table {topic!r}", Exit.CONFLICT)
    assert isinstance(entry, TableEntry), "a get returns an entry"
    show_record(shown_entry(entry, as_base64), output)


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("key")
@click.argument("value", required=False)
@click.option("--ttl-seconds", type=TTL, help="The key is deleted after this time.")
@click.option("--revision", type=REVISION, help="The revision that the key must have; -1 for a key without a value.")
@base64_option
@native_option
@output_option
def put(
    topic: str,
    key: str,
    value: str | None,
    ttl_seconds: float | None,
    revision: int | None,
    as_base64: bool,
    native: str,
    output: str,
) -> None:
    """Put VALUE, or standard input without it, for KEY in the table TOPIC, and show the revision.

    The exit code is 5 if the key does not have the given revision.
    """
    wanted = given_bytes(key, as_base64)
    data = sys.stdin.buffer.read() if value is None else given_bytes(value, as_base64)
    done = _on(native, topic, lambda table: table.put(wanted, data, ttl_seconds=ttl_seconds, revision=revision))
    show_record({"revision": done}, output)


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("key")
@click.option("--revision", type=OFFSET, help="The revision that the key must have.")
@base64_option
@native_option
@output_option
def delete(topic: str, key: str, revision: int | None, as_base64: bool, native: str, output: str) -> None:
    """Delete KEY from the table TOPIC; the exit code is 5 if it is absent, or has another revision."""
    wanted = given_bytes(key, as_base64)
    done = _on(native, topic, lambda table: table.delete(wanted, revision=revision))
    if done == -1:
        raise Failure(f"{key!r} is absent in table {topic!r}", Exit.CONFLICT)
    show_record({"revision": done}, output)


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("key")
@click.argument("value")
@click.option("--expected", help="The value that the key must have; without the option it must have none.")
@click.option("--ttl-seconds", type=TTL, help="The key is deleted after this time.")
@base64_option
@native_option
@output_option
def cas(
    topic: str,
    key: str,
    value: str,
    expected: str | None,
    ttl_seconds: float | None,
    as_base64: bool,
    native: str,
    output: str,
) -> None:
    """Compare and set: put VALUE for KEY if it has the expected value; the exit code is 5 if it has another."""
    wanted, data = given_bytes(key, as_base64), given_bytes(value, as_base64)
    before = None if expected is None else given_bytes(expected, as_base64)

    async def work(table: Table) -> int:
        return await table.compare_and_set(wanted, expected=before, value=data, ttl_seconds=ttl_seconds)

    show_record({"revision": _on(native, topic, work)}, output)


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("key")
@click.option("--by", type=int, default=1, show_default=True, help="The number to add; it may be negative.")
@base64_option
@native_option
@output_option
def incr(topic: str, key: str, by: int, as_base64: bool, native: str, output: str) -> None:
    """Add to the number that is the value of KEY, and show the sum; an absent key counts as 0."""
    wanted = given_bytes(key, as_base64)
    show_record({"value": _on(native, topic, lambda table: table.increment(wanted, by))}, output)


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path), default="-")
@base64_option
@native_option
@output_option
def txn(topic: str, file: Path, as_base64: bool, native: str, output: str) -> None:
    """Do a transaction on the table TOPIC, and show its answers; the exit code is 5 if a comparison does not hold.

    FILE, or standard input without it, is a JSON object with lists `compare`, `then` and `otherwise`, such as

    \b
    {"compare": [["value", "leader", "==", "one"]],
     "then": [["put", "leader", "two", 10], ["incr", "terms", 1]],
     "otherwise": [["get", "leader"]]}
    """
    name, data = str(file), _document_bytes(file)
    try:
        document = parse_document(data, as_base64=as_base64)
    except UnfitTransaction as error:
        raise Failure(f"{'standard input' if name == '-' else name}: {error}", Exit.USAGE) from None

    result = _on(native, topic, lambda table: table.txn(**document._asdict()))
    assert isinstance(result, TxnResult), "a transaction returns its result"
    show_record(shown_txn(document.then if result.succeeded else document.otherwise, result, as_base64), output)
    if not result.succeeded:
        raise Failure("a comparison does not hold: the operations of `otherwise` were done", Exit.CONFLICT)


def _document_bytes(file: Path) -> bytes:
    if str(file) != "-":
        return file.read_bytes()
    check_input()
    return sys.stdin.buffer.read()


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("prefix", default="")
@click.option("--after", help="Only keys after this one.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1_000, show_default=True, help="At most so many keys.")
@click.option("--keys-only", is_flag=True, help="Show no values.")
@base64_option
@native_option
@output_option
def scan(
    topic: str,
    prefix: str,
    after: str | None,
    limit: int,
    keys_only: bool,
    as_base64: bool,
    native: str,
    output: str,
) -> None:
    """Show the entries of the table TOPIC whose keys begin with PREFIX, in their order."""
    first = given_bytes(prefix, as_base64)
    start = None if after is None else given_bytes(after, as_base64)
    page = _on(native, topic, lambda table: table.scan(first, after=start, limit=limit, keys_only=keys_only))
    assert isinstance(page, Page), "a scan returns a page"
    columns = ("key", "partition") if keys_only else ("key", "value", "revision", "version", "partition")
    show_list([shown_entry(entry, as_base64) for entry in page.entries], columns, output)
    if page.after is not None:
        note(f"there are more: --after {shown_bytes(page.after, as_base64)!r}")


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("prefix", default="")
@click.option("--revision", type=OFFSET, help="Begin with the changes from this revision on (one partition).")
@click.option("--no-initial", is_flag=True, help="Begin with the changes from now on, without the present values.")
@base64_option
@native_option
def watch(topic: str, prefix: str, revision: int | None, no_initial: bool, as_base64: bool, native: str) -> None:
    """Show the keys of the table TOPIC that begin with PREFIX and their changes, a line each, until it is stopped."""
    first = given_bytes(prefix, as_base64)

    async def work(table: Table) -> None:
        async with table.watch(first, revision=revision, initial=not no_initial) as events:
            async for event in events:
                _show_event(event, as_base64)

    _on(native, topic, work)


@kv.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("prefix", default="")
@base64_option
@native_option
def history(topic: str, prefix: str, as_base64: bool, native: str) -> None:
    """Show all changes that the log of the table TOPIC has of keys that begin with PREFIX, a line each."""
    first = given_bytes(prefix, as_base64)

    async def work(table: Table) -> None:
        ends = (await table.scan(b"", limit=1, keys_only=True)).revisions
        left = {index: revision for index, revision in ends.items() if revision >= 0}
        if not left:
            return
        async with table.watch(b"", revision=dict.fromkeys(ends, 0)) as events:
            async for event in events:
                if event.key.startswith(first):
                    _show_event(event, as_base64)
                if event.revision >= left.get(event.partition, event.revision + 1):
                    del left[event.partition]
                if not left:
                    return

    _on(native, topic, work)


def _show_event(event: TableEvent, as_base64: bool) -> None:
    key, value = shown_bytes(event.key, as_base64), shown_bytes(event.value, as_base64)
    fields = [str(event.partition), str(event.revision), event.kind, key or "", *([] if value is None else [value])]
    click.echo("\t".join(fields))
    sys.stdout.flush()
