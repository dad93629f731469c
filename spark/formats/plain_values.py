"""Values that are kept as they are: bytes, or texts in UTF-8. A null value is a null. Pure."""

from __future__ import annotations

import pyarrow as pa

from gnomon.spark.formats.decoder import DecodedValues, Misfit

RAW_SCHEMA = pa.schema([("value", pa.binary())])
TEXT_SCHEMA = pa.schema([("value", pa.string())])


class RawDecoder:
    """Keeps values as bytes."""

    @property
    def schema(self) -> pa.Schema:
        """See `Decoder`."""
        return RAW_SCHEMA

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """See `Decoder`; every value fits."""
        return DecodedValues(pa.RecordBatch.from_arrays([values], schema=RAW_SCHEMA), [])


class TextDecoder:
    """Keeps values as texts; bytes that are not UTF-8 do not fit."""

    @property
    def schema(self) -> pa.Schema:
        """See `Decoder`."""
        return TEXT_SCHEMA

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """See `Decoder`."""
        try:
            return DecodedValues(pa.RecordBatch.from_arrays([values.cast(pa.string())], schema=TEXT_SCHEMA), [])
        except pa.ArrowInvalid:
            return _one_by_one(values.to_pylist())


def _one_by_one(values: list[bytes | None]) -> DecodedValues:
    texts: list[str | None] = []
    misfits: list[Misfit] = []
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            misfits.append(Misfit(row, str(error)))
    return DecodedValues(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=TEXT_SCHEMA), misfits)
