"""`gnomon fence`: gives a partition a fencing token."""

from __future__ import annotations

import click

from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.native.condition import REFUSALS, TOKEN, condition_options, refused, the_condition
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import PARTITION, TOPIC, native_option
from gnomon.cli.output import note, output_option
from gnomon.client.client import NativeClient
from gnomon.client.errors import NativeError
from gnomon.log.dlsn import Dlsn


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("new_token", type=TOKEN, metavar="TOKEN", required=False)
@click.option("--clear", is_flag=True, help="Take the token away instead.")
@click.option("--partition", type=PARTITION, default=0, show_default=True)
@condition_options
@native_option
@output_option
def fence(
    topic: str,
    new_token: bytes | None,
    clear: bool,
    partition: int,
    expect_sequence: int | None,
    expect_dlsn: Dlsn | None,
    expect_transaction: int | None,
    expect_empty: bool,
    token: bytes | None,
    native: str,
    output: str,
) -> None:
    """Give a partition a fencing token: that of TOPIC gets TOKEN, of 1 to 36 bytes.

    From then on no write with another token is acknowledged. If a condition does not hold, nothing is changed, the last
    record or the present token is shown, and the exit code is 5.
    """
    if clear == (new_token is not None):
        raise click.UsageError("give a TOKEN, or --clear")
    expected = the_condition(expect_sequence, expect_dlsn, expect_transaction, expect_empty)

    async def work(client: NativeClient) -> NativeError | None:
        try:
            await client.fence(topic, partition, new_token or b"", expected=expected, token=token)
        except REFUSALS as error:
            return error
        return None

    outcome = with_native_client(native, work)
    if isinstance(outcome, REFUSALS):
        raise refused(outcome, output)
    note(f"partition {partition} of topic '{topic}' is fenced" if new_token else f"partition {partition} has no token")
