"""`gnomon write`: one record from standard input, on the condition that the log ends as expected."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.native.end_of_log import printed
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import OFFSET, PARTITION, TOPIC, native_option
from gnomon.cli.output import output_option, show_record
from gnomon.client.client import NativeClient
from gnomon.client.errors import CasWriteException
from gnomon.client.protocol import WRITE_BYTES_MAX
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import EMPTY, SN

_DLSN = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([0-9]{1,19})")


def _dlsn_given(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Dlsn | None:
    if text is None:
        return None
    found = _DLSN.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no DLSN: write SEGMENT:ENTRY:SLOT, such as 0:17:2")
    return Dlsn(*map(int, found.groups()))


@click.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.option("--partition", type=PARTITION, default=0, show_default=True)
@click.option("--key", help="The key of the record; without the option it has none.")
@click.option("--expect-sequence", type=OFFSET, help="Write only if the last record has this offset.")
@click.option(
    "--expect-dlsn",
    callback=_dlsn_given,
    metavar="S:E:L",
    help="Write only if the last record is at this segment, entry and slot.",
)
@click.option("--expect-empty", is_flag=True, help="Write only if no record was ever written.")
@native_option
@output_option
def write(
    topic: str,
    partition: int,
    key: str | None,
    expect_sequence: int | None,
    expect_dlsn: Dlsn | None,
    expect_empty: bool,
    native: str,
    output: str,
) -> None:
    """Write standard input as one record to TOPIC, and show its place.

    A write whose condition does not hold changes nothing, shows the last record of the partition, and exits with 5.
    """
    expected = _expected(expect_sequence, expect_dlsn, expect_empty)
    value = sys.stdin.buffer.read(WRITE_BYTES_MAX + 1)  # one byte too many is refused

    async def work(client: NativeClient) -> SN | CasWriteException:
        try:
            return await client.write(
                topic, value, partition=partition, key=None if key is None else key.encode(), expected=expected
            )
        except CasWriteException as refused:
            return refused

    outcome = with_native_client(native, work)
    if isinstance(outcome, CasWriteException):
        show_record(printed(outcome.current), output)
        raise Failure(f"nothing was written: {outcome}", Exit.CONFLICT)
    show_record(printed(outcome), output)


def _expected(sequence_id: int | None, dlsn: Dlsn | None, is_empty: bool) -> SN | None:
    fields: dict[str, Any] = {}
    if is_empty:
        if sequence_id is not None or dlsn is not None:
            raise click.UsageError("--expect-empty is a condition of its own: leave the others out")
        return EMPTY
    if sequence_id is not None:
        fields["sequence_id"] = sequence_id
    if dlsn is not None:
        fields["dlsn"] = dlsn
    return SN(**fields) if fields else None
