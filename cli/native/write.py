"""`gnomon write`: one record from standard input, on the condition that the log ends as expected."""

from __future__ import annotations

import sys

import click

from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.native.condition import REFUSALS, condition_options, refused, the_condition
from gnomon.cli.native.end_of_log import printed
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import OFFSET, PARTITION, TOPIC, native_option
from gnomon.cli.output import output_option, show_record
from gnomon.client.client import NativeClient
from gnomon.client.errors import NativeError
from gnomon.client.protocol import WRITE_BYTES_MAX
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.option("--partition", type=PARTITION, default=0, show_default=True)
@click.option("--key", help="The key of the record; without the option it has none.")
@click.option("--transaction-id", type=OFFSET, help="The transaction id of the record.")
@condition_options
@native_option
@output_option
def write(
    topic: str,
    partition: int,
    key: str | None,
    transaction_id: int | None,
    expect_sequence: int | None,
    expect_dlsn: Dlsn | None,
    expect_transaction: int | None,
    expect_empty: bool,
    token: bytes | None,
    native: str,
    output: str,
) -> None:
    """Write standard input as one record, if the log ends as expected, to TOPIC, and show its place.

    A write whose condition does not hold changes nothing, shows the last record of the partition, and exits with 5.
    """
    expected = the_condition(expect_sequence, expect_dlsn, expect_transaction, expect_empty)
    value = sys.stdin.buffer.read(WRITE_BYTES_MAX + 1)  # one byte too many is refused

    async def work(client: NativeClient) -> SN | NativeError:
        try:
            return await client.write(
                topic,
                value,
                partition=partition,
                key=None if key is None else key.encode(),
                transaction_id=transaction_id,
                expected=expected,
                token=token,
            )
        except REFUSALS as error:
            return error

    outcome = with_native_client(native, work)
    if isinstance(outcome, REFUSALS):
        raise refused(outcome, output)
    assert isinstance(outcome, SN), "other errors end the command"
    show_record(printed(outcome), output)
