"""Numbered rows on their way through two stages, so that each reader can say which of them are missing or doubled.

1. Row n is record n // p of partition n % p of the source, which has p partitions.
2. `COPY_SQL` leaves out the rows whose key says so, and adds the partition to the others; their partition stays.
3. Of these, the rows with a malformed value become dead letters. All others become rows of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, TypeAlias

LEFT_OUT: Final = "left out"
COPY_SQL: Final = f"""
SELECT key, partition, concat('{{"copied_from": ', partition, ', ', substring(string(value), 2)) AS value
FROM source WHERE string(key) NOT LIKE '{LEFT_OUT}%'
"""
"""The query of the first stage over the view `source`."""
TABLE_SCHEMA: Final = "n BIGINT NOT NULL, copied_from INT, text STRING"
"""The columns of the second stage."""
SHOWN: Final = 3
"""The rows of a finding that are shown."""
_MALFORMED: Final = (b'{"n": "number %d", "text": "t"}', b'{"n": %d, "text": "cut', b'{"text": "without %d"}')

Record: TypeAlias = tuple[bytes, bytes]
"""Key and value."""
TableRow: TypeAlias = tuple[int, int, str, int, int]
"""The columns of TABLE_SCHEMA, and the partition and the offset of the record."""


class Letter(NamedTuple):
    """A dead letter: the record and its place."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class NumberedRows:
    """The rows 0 to `count` - 1 in each place.

    Args:
        partitions: those of the source and of its copy.
    """

    def __init__(self, partitions: int, count: int) -> None:
        self.partitions, self.count = partitions, count

    def source(self) -> list[list[Record]]:
        """The records of each partition of the source."""
        return [[record_of(n) for n in self._of(partition)] for partition in range(self.partitions)]

    def target(self) -> list[list[Record]]:
        """The records of each partition of the copy."""
        return [
            [(key, copied(value, partition)) for key, value in map(record_of, self._copied(partition))]
            for partition in range(self.partitions)
        ]

    def table(self) -> list[TableRow]:
        """The rows of the table."""
        return [
            (n, partition, text_of(n), partition, offset)
            for partition in range(self.partitions)
            for offset, n in enumerate(self._copied(partition))
            if not is_malformed(n)
        ]

    def letters(self) -> list[Letter]:
        """The dead letters."""
        return [
            Letter(partition, offset, record_of(n)[0], copied(record_of(n)[1], partition))
            for partition in range(self.partitions)
            for offset, n in enumerate(self._copied(partition))
            if is_malformed(n)
        ]

    def _of(self, partition: int) -> range:
        return range(partition, self.count, self.partitions)

    def _copied(self, partition: int) -> list[int]:
        return [n for n in self._of(partition) if not is_left_out(n)]


def is_left_out(number: int) -> bool:
    """Whether the first stage leaves the row out."""
    return number % 11 == 3


def is_malformed(number: int) -> bool:
    """Whether the value of the row does not fit TABLE_SCHEMA."""
    return number % 13 == 7


def text_of(number: int) -> str:
    """The text in a value that is not malformed."""
    return f"row {number} " + "." * (number % 50)


def record_of(number: int) -> Record:
    """A row in the source."""
    key = f"{LEFT_OUT if is_left_out(number) else 'key'} {number % 100}".encode()
    if is_malformed(number):
        return key, _MALFORMED[number % len(_MALFORMED)] % number
    return key, b'{"n": %d, "text": "%s"}' % (number, text_of(number).encode())


def copied(value: bytes, partition: int) -> bytes:
    """The value of a copied row in the target."""
    return b'{"copied_from": %d, ' % partition + value[1:]


def differences(where: str, expected: Sequence[Hashable], found: Sequence[Hashable]) -> list[str]:
    """Findings: expected rows that are missing, rows that are there too often, and a wrong order."""
    if list(expected) == list(found):
        return []
    missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    texts = [
        f"{where}: {sum(rows.values())} rows {what}, such as {list(rows)[:SHOWN]}"
        for what, rows in (("missing", missing), ("doubled or unknown", more))
        if rows
    ]
    if texts:
        return texts
    at = next(at for at, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
    return [f"{where}: out of order from row {at} on: {found[at : at + SHOWN]}, not {expected[at : at + SHOWN]}"]
