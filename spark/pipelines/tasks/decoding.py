"""Turns the records of topics into the rows of a table. Pure.

1. Each record becomes one row or one dead record, in the order of the records.
2. A row has the columns of its value, then those of its key, place and date. Where rows replace each other, it ends
   with `_deleted`: a null value deletes the row of its key.
3. A dead record has the bytes and the place of its record, and the reason.
4. `split` undoes `combined`.
5. In `combined`, a row has no dead record, and a dead record has nulls as its row. A row that deletes has nulls in the
   columns of its value. So no column is required where there may be such records: Spark reads no null of a column that
   is, and ends the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gnomon.spark.columns import SCHEMA
from gnomon.spark.formats.decoder import Decoder, Misfit
from gnomon.spark.formats.plain_values import TextDecoder
from gnomon.spark.pipelines.settings.section import BadPipeline

KEY_COLUMN: Final = "_key"
DATE_COLUMN: Final = "_date"
DELETED_COLUMN: Final = "_deleted"
DEAD_COLUMN: Final = "_dead"
PLACES: Final = ("topic", "partition", "offset", "timestamp")
READ_COLUMNS: Final = ("key", "value", *PLACES)
READ_SCHEMA: Final = pa.schema([SCHEMA.field(name) for name in READ_COLUMNS])
"""The columns of the source that are decoded."""
DEAD_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
    ]
)
_DEAD: Final = pa.struct(list(DEAD_SCHEMA))
_KEY_TYPES: Final = {"text": pa.string(), "raw": pa.binary()}


class DecodedRecords(NamedTuple):
    """The records of one batch."""

    rows: pa.RecordBatch
    dead: pa.RecordBatch
    """The records that the format does not fit (DEAD_SCHEMA)."""


class RecordDecoding:
    """Decodes records.

    Args:
        decoder: that of their values.
        key: `none`, or the form of the column `_key`.
        place_columns: the names of PLACES in the rows.
        upserts: see invariant 2.
        dated: whether the rows have the column `_date`, the day of their timestamps in UTC.

    Raises:
        BadPipeline: two columns have one name.
    """

    def __init__(self, decoder: Decoder, key: str, place_columns: Sequence[str], *, upserts: bool, dated: bool) -> None:
        self._decoder, self._key, self._upserts, self._dated = decoder, key, upserts, dated
        places = [
            pa.field(name, DEAD_SCHEMA.field(place).type) for name, place in zip(place_columns, PLACES, strict=True)
        ]
        keys = [pa.field(KEY_COLUMN, _KEY_TYPES[key])] if key in _KEY_TYPES else []
        dates = [pa.field(DATE_COLUMN, pa.date32())] if dated else []
        deleted = [pa.field(DELETED_COLUMN, pa.bool_())] if upserts else []
        self.schema = pa.schema([*decoder.schema, *keys, *places, *dates, *deleted])
        """The columns of the rows."""
        for name in self.schema.names:
            if self.schema.names.count(name) > 1 or name == DEAD_COLUMN:
                raise BadPipeline(
                    f"column {name!r}: the format and the place of a record give the same name to a column"
                )

    def decode(self, records: pa.RecordBatch) -> DecodedRecords:
        """The rows of some records.

        Args:
            records: have the columns of READ_SCHEMA.
        """
        values = records.column("value")
        found = self._decoder.decode(values)
        key_reasons = self._key_reasons(records.column("key"))
        if not found.misfits and not key_reasons:
            return DecodedRecords(self._rows(records, found.columns), _dead(records, []))
        value_reasons = dict(found.misfits)
        kept: list[int] = []
        places: list[int | None] = []
        dead: list[Misfit] = []
        decoded = 0
        for row, is_null in enumerate(pc.is_null(values).to_pylist()):
            fits = row not in value_reasons
            if row not in key_reasons and (fits or (is_null and self._upserts)):
                kept.append(row)
                places.append(decoded if fits else None)
            else:
                dead.append(Misfit(row, key_reasons.get(row) or value_reasons[row]))
            decoded += fits
        columns = found.columns.take(pa.array(places, pa.int64()))
        return DecodedRecords(self._rows(records.take(pa.array(kept, pa.int64())), columns), _dead(records, dead))

    def queried_schema(self, *, dead: bool) -> pa.Schema:
        """The columns of the rows beside other records (invariant 5).

        Args:
            dead: whether there may be dead records.
        """
        if not dead and not self._upserts:
            return self.schema
        return pa.schema([field.with_nullable(True) for field in self.schema])

    def combined_schema(self, *, dead: bool) -> pa.Schema:
        """The columns of `combined`; `dead` as for `queried_schema`."""
        return self.queried_schema(dead=dead).append(pa.field(DEAD_COLUMN, _DEAD))

    def combined(self, decoded: DecodedRecords, *, dead: bool) -> pa.RecordBatch:
        """Rows and dead records as one batch; `dead` as for `queried_schema`."""
        rows, letters = decoded
        return pa.RecordBatch.from_arrays(
            [
                *(pa.concat_arrays([column, pa.nulls(len(letters), column.type)]) for column in rows.columns),
                pa.concat_arrays(
                    [pa.nulls(len(rows), _DEAD), pa.StructArray.from_arrays(letters.columns, fields=list(_DEAD))]
                ),
            ],
            schema=self.combined_schema(dead=dead),
        )

    def _key_reasons(self, keys: pa.BinaryArray) -> dict[int, str]:
        """The records whose keys do not fit."""
        reasons: dict[int, str] = {}
        if self._key == "text":
            _, misfits = TextDecoder().decode(keys)
            reasons |= {misfit.row: f"the key: {misfit.reason}" for misfit in misfits}
        if self._upserts and keys.null_count:
            nulls = pc.indices_nonzero(pc.is_null(keys)).to_pylist()
            reasons |= dict.fromkeys(nulls, "the key is null, so the record replaces no row")
        return reasons

    def _rows(self, records: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of records, all of which are decoded into `columns` or deleted."""
        keys = [records.column("key").cast(_KEY_TYPES[self._key])] if self._key in _KEY_TYPES else []
        places = [records.column(name) for name in PLACES]
        dates = [records.column("timestamp").cast(pa.date32(), safe=False)] if self._dated else []
        deleted = [pc.is_null(records.column("value"))] if self._upserts else []
        return pa.RecordBatch.from_arrays([*columns.columns, *keys, *places, *dates, *deleted], schema=self.schema)


def _dead(records: pa.RecordBatch, misfits: Sequence[Misfit]) -> pa.RecordBatch:
    rows = pa.array([misfit.row for misfit in misfits], pa.int64())
    fields = [records.column(name).take(rows) for name in (*PLACES, "key", "value")]
    reasons = pa.array([misfit.reason for misfit in misfits], pa.string())
    return pa.RecordBatch.from_arrays([*fields, reasons], schema=DEAD_SCHEMA)


def without_deleted(schema: pa.Schema) -> pa.Schema:
    """The columns of the table of these rows."""
    return pa.schema([field for field in schema if field.name != DELETED_COLUMN])


def split(batch: pa.RecordBatch) -> DecodedRecords:
    """The rows and the dead records of a combined batch."""
    dead = batch.column(DEAD_COLUMN)
    is_row = pc.is_null(dead)
    rows = batch.drop_columns([DEAD_COLUMN]).filter(is_row)
    kept = dead.filter(pc.invert(is_row))
    return DecodedRecords(rows, pa.RecordBatch.from_arrays(kept.flatten(), schema=DEAD_SCHEMA))
