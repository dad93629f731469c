"""Values that are JSON objects, one for each record. Pure.

1. A column is the member of its name; a member that is missing or null is null. Other members are ignored.
2. A member of another type is a misfit: nothing is converted, except texts to times, dates and decimals, and whole
   numbers to floating-point ones.
3. A value is decoded in the same way alone and among others (`decoder`).
4. A time without a zone is in UTC.
5. A column that is not nullable has no nulls. A struct with such a member is not null either.
6. A column of a type that JSON does not have, such as bytes or a map, is refused when the decoder is made.

All values of a record batch are parsed in one call of Arrow's reader, which takes some 1 us for each. The reader takes
them for a stream of objects. Each value must begin with `{` and end with `}`, so that no object continues in the next
value: nothing but the end of an object can be between `}` and `{`. Then the number of objects shows whether a value has
several.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyarrow import json

from gnomon.spark.formats.decoder import BadFormat, DecodedValues, decode_together, joined

_PLACE: Final = re.compile(r" in row \d+$")
_BLANKS: Final = b" \t\r\n"
_KNOWN: Final = (
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string()),
    *(pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
)


class JsonDecoder:
    """Decodes JSON objects.

    Args:
        schema: the columns; their types are booleans, numbers, texts, dates, timestamps in microseconds, decimals of up
            to 38 digits, and structs and lists of these.

    Raises:
        BadFormat: a column has another type, or the name of another one; or there is no column.
    """

    def __init__(self, schema: pa.Schema) -> None:
        if not len(schema) or len(set(schema.names)) < len(schema):
            raise BadFormat("the format json needs columns, each with a name of its own")
        self._schema = schema
        self._parsed = pa.schema([_parsed_field(field, field.name) for field in schema])
        self._options = json.ParseOptions(
            explicit_schema=self._parsed, unexpected_field_behavior="ignore", newlines_in_values=True
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
        try:
            found = read_objects(values, self._options)
            rows = joined(found.select(self._parsed.names).cast(self._schema).to_batches(), self._schema)
            rows.validate(full=True)  # Arrow's reader lets a decimal exceed its precision
            return rows
        except pa.ArrowException as error:
            raise ValueError(_PLACE.sub("", str(error))) from None


def read_objects(values: list[bytes], options: json.ParseOptions) -> pa.Table:
    """One row for each value.

    Raises:
        ValueError: a value is not one JSON object, or does not fit the options.
    """
    for value in values:
        if value.lstrip(_BLANKS)[:1] != b"{" or value.rstrip(_BLANKS)[-1:] != b"}":
            raise ValueError("not a JSON object")
    text = b"\n".join(values)
    text.decode()  # Arrow's reader does not validate texts
    reading = json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    found = json.read_json(pa.BufferReader(text), reading, options)
    if found.num_rows != len(values):
        raise ValueError(f"{found.num_rows} JSON objects in {len(values)} values")
    return found


def _parsed_field(field: pa.Field, place: str) -> pa.Field:
    """The field that is parsed for a column: dates are texts, which are cast.

    Raises:
        BadFormat: JSON does not have this type.
    """
    kind = field.type
    if pa.types.is_date32(kind):
        return field.with_type(pa.string())
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_parsed_field(each, f"{place}.{each.name}") for each in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_parsed_field(kind.value_field, f"{place}[]")))
    if not (kind in _KNOWN or pa.types.is_decimal128(kind)):
        raise BadFormat(f"column {place!r}: the format json has no values of type {kind}; give it another type")
    return field
