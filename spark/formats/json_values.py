"""Values that are JSON objects, one for each record. Pure.

1. A column is the member of its name; a member that is missing or null is null. Other members are ignored.
2. A member of another type is a misfit: nothing is converted, except texts to times, dates and decimals, and whole
   numbers to floating-point ones.
3. A value is decoded in the same way alone and among others (`decoder`).

All values of a record batch are parsed in one call of Arrow's reader, which takes some 1 us for each. The reader takes
them for a stream of objects. Each value must begin with `{` and end with `}`, so that no object continues in the next
value; then the number of objects shows whether a value has several.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyarrow import json

from gnomon.spark.formats.decoder import DecodedValues, decode_together, joined

_PLACE: Final = re.compile(r" in row \d+$")
_BLANKS: Final = b" \t\r\n"


class JsonDecoder:
    """Decodes JSON objects.

    Args:
        schema: the columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parsed = pa.schema([field.with_type(_parsed_type(field.type)) for field in schema])
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
        for value in values:
            if value.lstrip(_BLANKS)[:1] != b"{" or value.rstrip(_BLANKS)[-1:] != b"}":
                raise ValueError("not a JSON object")
        text = b"\n".join(values)
        text.decode()  # Arrow's reader does not validate texts
        try:
            reading = json.ReadOptions(use_threads=False, block_size=len(text) + 1)
            found = json.read_json(pa.BufferReader(text), reading, self._options)
            if found.num_rows != len(values):
                raise ValueError(f"{found.num_rows} JSON objects in {len(values)} values")
            return joined(found.select(self._parsed.names).cast(self._schema).to_batches(), self._schema)
        except pa.ArrowException as error:
            raise ValueError(_PLACE.sub("", str(error))) from None


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type that is parsed for a column of this type: dates are texts, which are cast."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_type(kind.value_type)))
    return kind
