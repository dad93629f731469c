"""Values that are Avro records without a container, with or without the id of their schema. Pure.

1. A column is the field of its name in the reader's schema. The writer's schema is resolved as Avro specifies, with
   aliases and defaults.
2. With ids, a value is a zero byte, the id of the writer's schema in four bytes, big-endian, and the record: the form
   of Confluent's serializers. The writer of an id is asked for once; `WRITERS_MAX` ids are remembered.
3. Bytes after the record are a misfit, and so is a record that ends early, also in a field that is skipped.
4. A value costs memory and time in proportion to its bytes, regardless of its lengths and counts (`avro_schema`).
5. A value is decoded in the same way alone and among others (`decoder`).
6. A decimal of more digits than its column has is a misfit.

fastavro reads an index of a union or an enumeration that is below zero from the end. A value with such an index has no
meaning in Avro, and is not noticed here.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from gnomon.spark.formats.avro_schema import (
    DECIMAL_DIGITS_MAX,
    AvroSchema,
    AvroType,
    UnknownSchema,
    avro_columns,
    decimal_scale,
    different_meaning,
)
from gnomon.spark.formats.decoder import BadFormat, DecodedValues, decode_together

WRITERS_MAX: Final = 10_000

_HEAD_BYTES: Final = 5
_DECIMAL_BYTES_MAX: Final = 64
"""Far more than 38 digits need: writers may repeat the sign."""
_EXACT: Final = Context(prec=2 * DECIMAL_DIGITS_MAX)

Change = Callable[[Any], Any]
"""Changes a value, as fastavro reads it without logical types, into the value of a column."""


class AvroDecoder:
    """Decodes Avro records.

    Args:
        schema: the reader's schema, as JSON or as its text.
        writer_of: yields the writer's schema of an id, and raises UnknownSchema if there is none; other errors are
            raised by `decode`. None if the values have no ids: the writer's schema is the reader's then.

    Raises:
        BadFormat: the schema is not valid, or has no columns (`avro_schema`).
    """

    def __init__(
        self, schema: str | dict[str, Any], writer_of: Callable[[int], str | dict[str, Any]] | None = None
    ) -> None:
        self._reader = AvroSchema(schema)
        self._schema = avro_columns(self._reader)
        self._rows = pa.struct(list(self._schema))
        self._change = _change(self._reader, self._reader.meaning)
        _set_defaults(self._reader)
        self._writer_of = writer_of
        self._writers: dict[int, Any] = {}

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
        records = [self._record(value) for value in values]
        if self._change is not None:
            records = [self._change(record) for record in records]
        try:
            batch = pa.RecordBatch.from_struct_array(pa.array(records, self._rows))
            batch.validate(full=True)
        except (pa.ArrowException, OverflowError) as error:
            raise ValueError(f"a field does not fit its column: {error}") from None
        return batch

    def _record(self, value: bytes) -> dict[str, Any]:
        """The record of a value.

        Raises:
            ValueError: the value does not fit.
        """
        source = BytesIO(value + b"\0")  # the byte after the record is read only if the record ends early
        writer = self._reader.stored if self._writer_of is None else self._writer(value[:_HEAD_BYTES])
        source.seek(0 if self._writer_of is None else _HEAD_BYTES)
        try:
            wanted = None if writer is self._reader.stored else self._reader.stored
            record: Any = schemaless_reader(source, writer, wanted)
        except EOFError:
            raise ValueError("the record ends early") from None
        except (SchemaResolutionError, LookupError, ValueError, ArithmeticError, TypeError) as error:
            raise ValueError(f"not a record of the schema: {error}") from None
        if source.tell() != len(value):
            extra = len(value) - source.tell()
            raise ValueError(f"{extra} bytes after the record" if extra > 0 else "the record ends early")
        assert isinstance(record, dict), "both schemas are of records"
        return record

    def _writer(self, head: bytes) -> Any:
        """The schema of the id in the first bytes of a value.

        Raises:
            ValueError: there is no id, or no schema of this id that can be read.
        """
        if len(head) < _HEAD_BYTES or head[0]:
            raise ValueError("the value does not begin with a zero byte and the id of a schema")
        schema_id = int.from_bytes(head[1:], "big")
        if schema_id not in self._writers:
            if len(self._writers) >= WRITERS_MAX:
                self._writers.pop(next(iter(self._writers)))
            self._writers[schema_id] = self._asked(schema_id)
        found = self._writers[schema_id]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _asked(self, schema_id: int) -> Any:
        """The schema of an id, or the reason why it cannot be read."""
        assert self._writer_of is not None
        try:
            writer = AvroSchema(self._writer_of(schema_id))
        except (UnknownSchema, BadFormat) as error:
            return f"schema {schema_id}: {error}"
        if writer.meaning == self._reader.meaning:  # nothing to resolve: some 1 us less for each record
            return self._reader.stored
        difference = different_meaning(writer, self._reader)
        return writer.stored if difference is None else f"schema {schema_id}: {difference}"


def _change(schema: AvroSchema, given: AvroType) -> Change | None:
    """Makes values of a type of the reader's schema fit the column; None if they fit as they are."""
    (kind,) = schema.branches(given)
    if kind["type"] == "record":
        changes = [(field["name"], _change(schema, field["type"])) for field in kind["fields"]]
        change = _change_of_record([(name, each) for name, each in changes if each is not None])
    elif kind["type"] in ("array", "map"):
        change = _change_of_items(_change(schema, kind["items" if kind["type"] == "array" else "values"]))
    elif (scale := decimal_scale(kind)) is not None:
        change = _change_of_decimal(scale, kind["precision"])
    elif (kind["type"], kind.get("logicalType")) == ("long", "timestamp-millis"):
        change = _micros
    else:
        change = None
    if change is None:
        return None
    known = change
    return lambda value: None if value is None else known(value)


def _change_of_record(changes: list[tuple[str, Change]]) -> Change | None:
    def change(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, **{name: each(record[name]) for name, each in changes}}  # a default belongs to all records

    return change if changes else None


def _change_of_items(inner: Change | None) -> Change | None:
    if inner is None:
        return None
    known = inner

    def change(items: Any) -> Any:
        if isinstance(items, dict):
            return {key: known(value) for key, value in items.items()}
        return [known(each) for each in items]

    return change


def _change_of_decimal(scale: int, digits: int) -> Change:
    limit = 10**digits

    def change(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True) if len(value) <= _DECIMAL_BYTES_MAX else limit
        if abs(number) >= limit:
            raise ValueError(f"a decimal has more than {digits} digits")
        return Decimal(number).scaleb(-scale, _EXACT)

    return change


def _micros(millis: int) -> int:
    return millis * 1_000


def _set_defaults(schema: AvroSchema) -> None:
    """Gives the fields of the reader's schema their defaults as values, because fastavro yields them as in JSON."""
    for kind in (schema.stored, *schema.stored["__named_schemas"].values()):
        for field in kind.get("fields", ()):
            if "default" in field:
                try:
                    field["default"] = _default(schema, field["type"], field["default"])
                except (LookupError, TypeError, ValueError, AttributeError):
                    raise BadFormat(f"field {field['name']!r}: its default is not a value of its type") from None


def _default(schema: AvroSchema, given: AvroType, value: Any) -> Any:
    if value is None:
        return None
    (kind,) = schema.branches(given)
    match kind["type"]:
        case "bytes" | "fixed" if isinstance(value, str):
            return value.encode("latin-1")
        case "array":
            return [_default(schema, kind["items"], each) for each in value]
        case "map":
            return {key: _default(schema, kind["values"], each) for key, each in value.items()}
        case "record":
            return {
                field["name"]: _default(
                    schema, field["type"], value[field["name"]] if field["name"] in value else field["default"]
                )
                for field in kind["fields"]
            }
    return value
