"""The decoder of a pipeline's format."""

from __future__ import annotations

from functools import partial

from gnomon.spark.formats.avro_values import AvroDecoder
from gnomon.spark.formats.csv_values import CsvDecoder
from gnomon.spark.formats.ddl import schema_of_ddl
from gnomon.spark.formats.decoder import BadFormat, Decoder
from gnomon.spark.formats.json_values import JsonDecoder
from gnomon.spark.formats.plain_values import RawDecoder, TextDecoder
from gnomon.spark.formats.schema_registry import SchemaRegistry
from gnomon.spark.pipelines.settings.settings import FormatSettings


def decoder_of(form: FormatSettings) -> Decoder:
    """The decoder of a format; each task makes its own.

    Raises:
        BadFormat: the schema cannot be used, or is not known yet.
    """
    if form.kind in ("text", "raw"):
        return TextDecoder() if form.kind == "text" else RawDecoder()
    if form.schema is None:
        raise BadFormat("format.schema: not given; `gnomon pipeline check FILE --write-schema` infers it from records")
    if form.kind == "json":
        return JsonDecoder(schema_of_ddl(form.schema))
    if form.kind == "csv":
        return CsvDecoder(schema_of_ddl(form.schema), form.delimiter)
    if form.registry is None:
        return AvroDecoder(form.schema)
    return AvroDecoder(form.schema, partial(_avro_schema, SchemaRegistry(form.registry)))


def _avro_schema(registry: SchemaRegistry, number: int) -> str:
    """The schema of an id; raises as `SchemaRegistry.by_id`."""
    _, kind, text = registry.by_id(number)
    if kind != "AVRO":
        raise BadFormat(f"its kind in the registry is {kind!r:.60}, not Avro")
    return text
