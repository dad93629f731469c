"""An SN as commands print it, and the end of a partition: `gnomon position`."""

from __future__ import annotations

from typing import Any

import click

from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import PARTITION, TOPIC, native_option
from gnomon.cli.output import output_option, show_record
from gnomon.client.client import NativeClient
from gnomon.client.writes.end import End
from gnomon.log.sn import SN


def printed(sn: SN) -> dict[str, Any]:
    """The fields of an SN by name; a DLSN as `SEGMENT:ENTRY:SLOT`, None if it is not known."""
    return {
        "sequence_id": sn.sequence_id,
        "dlsn": None if sn.dlsn is None else ":".join(map(str, sn.dlsn)),
        "transaction_id": sn.transaction_id,
    }


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.option("--partition", type=PARTITION, default=0, show_default=True)
@native_option
@output_option
def position(topic: str, partition: int, native: str, output: str) -> None:
    """Show the last record of a partition of TOPIC, and its fencing token: what a conditional write has to expect.

    A sequence id of -1 means that no record was ever written.
    """

    async def work(client: NativeClient) -> End:
        return await client.end(topic, partition)

    end = with_native_client(native, work)
    show_record({**printed(end.sn), "token": end.token.decode("ascii", "backslashreplace")}, output)
