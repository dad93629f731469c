"""Checks the arguments of writes, before anything is sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gnomon.client.errors import InvalidCall
from gnomon.client.protocol import WRITE_BYTES_MAX
from gnomon.client.writes.client_write import ClientTerms, Expected, Previous, WriteRecord
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN, SN_MAX
from gnomon.log.term_headers import TOKEN_BYTES_MAX

RECORDS_MAX: Final = 20_000
"""Records of one batch."""
_FRAME_BYTES: Final = 1 << 16
"""Room for the header of a batch and the lengths of a record's fields."""


def checked_records(records: Iterable[bytes | WriteRecord | None]) -> Sequence[WriteRecord]:
    """The records of one batch.

    Raises:
        InvalidCall: there are none, too many or too large ones, or a field has another type.
    """
    found = [record if isinstance(record, WriteRecord) else WriteRecord(record) for record in records]
    if not 0 < len(found) <= RECORDS_MAX:
        raise InvalidCall(f"write 1 to {RECORDS_MAX} records at a time, not {len(found)}")
    size_bytes = 0
    for value, key, headers in found:
        for field in (value, key, *(value for _, value in headers)):
            if field is not None and not isinstance(field, bytes):
                raise InvalidCall(f"keys, values and values of headers are bytes or None, not {type(field).__name__}")
            size_bytes += len(field or b"") + 16
        if not all(isinstance(name, str) for name, _ in headers):
            raise InvalidCall("names of headers are texts")
    if size_bytes + _FRAME_BYTES > WRITE_BYTES_MAX:
        raise InvalidCall(f"one batch has at most {WRITE_BYTES_MAX} bytes, not {size_bytes}: write less at a time")
    return found


def checked_expected(expected: SN | Dlsn | Previous | None) -> Expected:
    """The SN that is expected.

    Raises:
        InvalidCall: it is no expectation.
    """
    if expected is None or isinstance(expected, Previous):
        return expected
    if isinstance(expected, Dlsn):
        expected = SN(dlsn=expected)
    if not isinstance(expected, SN):
        raise InvalidCall(f"expect an SN, a Dlsn or nothing, not {expected!r:.100}")
    if expected == SN():
        raise InvalidCall("an SN without fields expects nothing: set one, or leave `expected` out")
    try:
        return SN.decode(expected.encode())
    except (ValueError, TypeError) as error:
        raise InvalidCall(str(error)) from None


def checked_terms(
    expected: SN | Dlsn | Previous | None, transaction_id: int | None, token: bytes | None
) -> ClientTerms:
    """The terms of a write.

    Raises:
        InvalidCall: they are not valid.
    """
    if transaction_id is not None and (type(transaction_id) is not int or not 0 <= transaction_id <= SN_MAX):
        raise InvalidCall(f"a transaction id is a number from 0 to {SN_MAX}, not {transaction_id!r:.100}")
    return ClientTerms(checked_expected(expected), transaction_id, checked_token(token))


def checked_token(token: bytes | None) -> bytes | None:
    """A fencing token that a write or a fence expects.

    Raises:
        InvalidCall: it is none.
    """
    if token is not None and (not isinstance(token, bytes) or not 0 < len(token) <= TOKEN_BYTES_MAX):
        raise InvalidCall(f"a fencing token is 1 to {TOKEN_BYTES_MAX} bytes, not {token!r:.100}")
    return token


def checked_partition(partition: Any) -> int:
    """The number of a partition.

    Raises:
        InvalidCall: it is none.
    """
    if type(partition) is not int or partition < 0:
        raise InvalidCall(f"a partition is a number from 0 on, not {partition!r:.100}")
    return partition
