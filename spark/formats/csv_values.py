"""Values that are lines of fields with a delimiter between them (CSV), one line for each record. Pure.

1. The fields have the order of the columns, and a value has one for each column. A value may end with a line end; any
   other line end is a misfit, also between quotes.
2. A field may be in double quotes, in which two quotes are one. A value whose last quote does not close is a misfit.
3. An empty field is null; `""` is an empty text.
4. A value is decoded in the same way alone and among others (`decoder`).
5. A time without a zone is in UTC.
6. A column that is not nullable has no nulls.
7. A column of a type that a field cannot have is refused when the decoder is made.

All values of a record batch are parsed in one call of Arrow's reader, as lines between two lines without values. A line
yields at most one row, and a line with an open quote takes the next line into its row: if each line yields a row, no
value has an open quote. The first line also keeps the reader from dropping a byte order mark at the start of a value.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from gnomon.spark.formats.decoder import BadFormat, DecodedValues, decode_together

_PLACE: Final = re.compile(r"Row #\d+: |(?<=, got )(\d+):.*", re.DOTALL)
_COLUMN: Final = re.compile(r"In (?:CSV )?column #?(\d+): (?:Invalid: )?")
_ZONE: Final = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_UTC: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
_KNOWN: Final = (
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary()),
    *(pa.date32(), _UTC, _LOCAL),
)


class CsvDecoder:
    """Decodes lines of fields.

    Args:
        schema: the columns; their types are booleans, numbers, texts, bytes, dates, timestamps in microseconds, and
            decimals of up to 38 digits.
        delimiter: one ASCII character, no quote and no line end.

    Raises:
        BadFormat: a column has another type, or the name of another one; there is no column; or the delimiter is not
            one such character.
    """

    def __init__(self, schema: pa.Schema, delimiter: str = ",") -> None:
        if not len(schema) or len(set(schema.names)) < len(schema):
            raise BadFormat("the format csv needs columns, each with a name of its own")
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise BadFormat(f"the delimiter {delimiter!r} is not one ASCII character, or is a quote or a line end")
        for field in schema:
            if not (field.type in _KNOWN or pa.types.is_decimal128(field.type)):
                raise BadFormat(f"column {field.name!r}: the format csv has no values of type {field.type}")
        self._schema = schema
        self._empty = delimiter.encode() * (len(schema) - 1)
        self._parse_options = csv.ParseOptions(delimiter=delimiter, newlines_in_values=False, ignore_empty_lines=False)
        self._convert_options = csv.ConvertOptions(
            column_types={field.name: pa.string() if field.type == _UTC else field.type for field in schema},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    @property
    def schema(self) -> pa.Schema:
        """See `Decoder`."""
        return self._schema

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """See `Decoder`."""
        return decode_together(values, self._schema, self._parse)

    def _parse(self, values: list[bytes]) -> pa.RecordBatch:
        """One row for each value.

        Raises:
            ValueError: a value does not fit.
        """
        text = self._text(values)
        reading = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._schema.names)
        try:
            found = csv.read_csv(pa.BufferReader(text), reading, self._parse_options, self._convert_options)
            if found.num_rows != len(values) + 2:
                raise ValueError("a quote is not closed")
            rows = found.combine_chunks().slice(1, len(values))
            columns = [_column(rows.column(at).chunk(0), field) for at, field in enumerate(self._schema)]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            batch.validate(full=True)  # Arrow's reader lets a decimal exceed its precision
            return batch
        except pa.ArrowException as error:
            raise ValueError(self._reason(str(error))) from None

    def _reason(self, text: str) -> str:
        """The text of an error of Arrow's reader, with the name of the column instead of places in the joined lines."""
        named = _COLUMN.sub(lambda found: f"column {self._schema.names[int(found[1])]!r}: ", text)
        return _PLACE.sub(lambda found: found[1] or "", named)

    def _text(self, values: list[bytes]) -> bytes:
        """The values as lines between two empty ones.

        Raises:
            ValueError: a value is not one line, or is blank and should have several fields.
        """
        text = b"\n".join((self._empty, *values, self._empty, b""))
        if text.count(b"\n") != len(values) + 2 or b"\r" in text:
            values = [value.removesuffix(b"\n").removesuffix(b"\r") for value in values]
            text = b"\n".join((self._empty, *values, self._empty, b""))
            if text.count(b"\n") != len(values) + 2 or b"\r" in text:
                raise ValueError("a line end inside of the value")
        if self._empty and b"" in values:  # the reader would take a blank line for a row of nulls
            raise ValueError("the value is blank")
        return text


def _column(found: pa.Array, field: pa.Field) -> pa.Array:
    """The column of a field.

    Raises:
        ValueError: it has a null, or a text that is no time.
    """
    if not field.nullable and found.null_count:
        raise ValueError(f"column {field.name!r} is null")
    if field.type != _UTC:
        return found
    has_zone = pc.match_substring_regex(found, _ZONE)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(has_zone, found, nothing).cast(_UTC)
    return pc.coalesce(with_zone, pc.if_else(has_zone, nothing, found).cast(_LOCAL).cast(_UTC))
