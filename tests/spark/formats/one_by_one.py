"""Compares the decoding of values together with the decoding of each alone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gnomon.spark.formats.decoder import DecodedValues, Decoder, Misfit


def decoded(decoder: Decoder, *values: bytes | None) -> DecodedValues:
    """The values, decoded."""
    found = decoder.decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    assert found.columns.schema == decoder.schema
    return found


def rows(decoder: Decoder, *values: bytes | None) -> list[dict[str, object]]:
    """The rows of values that all fit."""
    found = decoded(decoder, *values)
    assert found.misfits == []
    listed: list[dict[str, object]] = found.columns.to_pylist()
    return listed


def reason(decoder: Decoder, value: bytes | None) -> str:
    """The reason why a value does not fit."""
    found = decoded(decoder, value)
    assert found.columns.num_rows == 0
    (misfit,) = found.misfits
    return misfit.reason


def assert_alike(decoder: Decoder, values: Sequence[bytes | None]) -> None:
    """Each value becomes the same row, or the same misfit, as alone; rows and misfits have the order of the values."""
    fitting: list[pa.RecordBatch] = []
    misfits: list[Misfit] = []
    for row, value in enumerate(values):
        alone = decoded(decoder, value)
        assert alone.columns.num_rows + len(alone.misfits) == 1
        fitting.append(alone.columns)
        misfits += [each._replace(row=row) for each in alone.misfits]
    together = decoded(decoder, *values)
    assert together.misfits == misfits
    expected = pa.Table.from_batches(fitting, decoder.schema).combine_chunks()
    assert as_text(pa.Table.from_batches([together.columns])) == as_text(expected)


def as_text(table: pa.Table) -> list[str]:
    """All values as text, in which a number that is none equals another one."""
    arrays = [pa.concat_arrays([pa.array([], column.type), *column.chunks]) for column in table.columns]
    return [array.to_string(window=1_000_000) for array in arrays]
