"""Reads Avro files in Spark's tasks: each task reads one file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import fastavro
import pyarrow as pa

from gnomon.spark.formats.avro_schema import AvroSchema, avro_columns, different_meaning
from gnomon.spark.formats.decoder import BadFormat

_ROWS: Final = 4096
"""Rows of a batch."""


class UnreadableFile(Exception):
    """A file that is not as the format says; the text names it."""


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Turns the numbers of files into their rows.

    Args:
        paths: the files.
        schema: the schema that is read, as JSON; each file has its own one, from which its records are resolved.
    """

    paths: tuple[str, ...]
    schema: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files whose numbers the batches have.

        Raises:
            UnreadableFile: see there.
        """
        schema = AvroSchema(self.schema)
        columns = avro_columns(schema)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _rows(self.paths[number], schema, columns)


def _rows(path: str, schema: AvroSchema, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        with open(path, "rb") as file:
            reader: Any = fastavro.reader(file, reader_schema=schema.meaning)
            differs = different_meaning(AvroSchema(reader.metadata["avro.schema"]), schema)
            if differs is not None:
                raise BadFormat(differs)
            while found := list(islice(reader, _ROWS)):
                yield pa.RecordBatch.from_pylist(found, columns)
    except Exception as error:  # fastavro and Arrow raise errors of many types
        reason = str(error) if isinstance(error, BadFormat) else repr(error)
        raise UnreadableFile(f"{path}: cannot be read as Avro: {reason:.300}") from error
