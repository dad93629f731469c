"""`gnomon kv status` and `gnomon kv snapshot`: the states of tables, and snapshots of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import TOPIC, native_option
from gnomon.cli.output import note, output_option, show_list
from gnomon.client.client import NativeClient
from gnomon.log.tables.table_status import TableStatus

COLUMNS = ("partition", "revision", "keys", "bytes_used", "log_start", "log_end", "snapshot_revision", "digest")


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.option("--digest", is_flag=True, help="Compute the digest of the entries: SHA-256 over keys, revisions, values.")
@native_option
@output_option
def status(topic: str, digest: bool, native: str, output: str) -> None:
    """Show the state of the table TOPIC, partition by partition.

    Two tables with the same digest at the same revision have the same keys, values and revisions.
    """

    async def work(client: NativeClient) -> Sequence[TableStatus]:
        return await client.table(topic).status(digest=digest)

    found = with_native_client(native, work)
    columns = COLUMNS if digest else COLUMNS[:-1]
    show_list([asdict(each) for each in found], columns, output)
    for each in found:
        if each.snapshot_failure is not None:
            note(f"partition {each.partition}: the last snapshot failed: {each.snapshot_failure}")


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@native_option
@output_option
def snapshot(topic: str, native: str, output: str) -> None:
    """Take a snapshot of the table TOPIC, so that its records up to there need not stay in the log.

    A partition that has nothing new keeps its newest snapshot.
    """

    async def work(client: NativeClient) -> Sequence[TableStatus]:
        table = client.table(topic)
        await table.snapshot()
        return await table.status()

    found = with_native_client(native, work)
    show_list([asdict(each) for each in found], ("partition", "snapshot_revision", "keys", "bytes_used"), output)
