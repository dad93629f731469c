"""The options of commands that write on a condition, and the outcome of a condition that does not hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.native.end_of_log import printed
from gnomon.cli.options import OFFSET
from gnomon.cli.output import show_record
from gnomon.client.errors import CasWriteException, TokenMismatch, TransactionOutOfOrder
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import EMPTY, SN
from gnomon.log.term_headers import TOKEN_BYTES_MAX

REFUSALS = (CasWriteException, TransactionOutOfOrder, TokenMismatch)
_DLSN = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([0-9]{1,19})")


class Token(click.ParamType[bytes]):
    """A fencing token: 1 to 36 bytes of UTF-8."""

    name = "token"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """See `click.ParamType`."""
        token = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            self.fail(f"has {len(token)} bytes: a fencing token has 1 to {TOKEN_BYTES_MAX}", param, ctx)
        return token


TOKEN = Token()


def _dlsn_given(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Dlsn | None:
    if text is None:
        return None
    found = _DLSN.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no DLSN: write SEGMENT:ENTRY:SLOT, such as 0:17:2")
    return Dlsn(*map(int, found.groups()))


_OPTIONS = (
    click.option("--expect-sequence", type=OFFSET, help="Only if the last record has this offset."),
    click.option(
        "--expect-dlsn",
        callback=_dlsn_given,
        metavar="S:E:L",
        help="Only if the last record is at this segment, entry and slot.",
    ),
    click.option("--expect-transaction", type=OFFSET, help="Only if the last transaction id is this one."),
    click.option("--expect-empty", is_flag=True, help="Only if no record was ever written."),
    click.option("--token", type=TOKEN, help="Only if this is the fencing token of the partition."),
)


def condition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--expect-…` and `--token`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def the_condition(sequence_id: int | None, dlsn: Dlsn | None, transaction_id: int | None, is_empty: bool) -> SN | None:
    """The SN that the options expect; None if they expect nothing.

    Raises:
        click.UsageError: they contradict each other.
    """
    fields = SN(dlsn, transaction_id, sequence_id)
    if not is_empty:
        return None if fields == SN() else fields
    if fields != SN():
        raise click.UsageError("--expect-empty is a condition of its own: leave the others out")
    return EMPTY


def refused(error: CasWriteException | TransactionOutOfOrder | TokenMismatch, output: str) -> Failure:
    """Shows the end of the log, or the token, that a refusal names; returns the error that ends the command."""
    if isinstance(error, TokenMismatch):
        show_record({"token": error.current.decode("ascii", "backslashreplace")}, output)
    else:
        show_record(printed(error.current), output)
    return Failure(f"nothing was written: {error}", Exit.CONFLICT)
