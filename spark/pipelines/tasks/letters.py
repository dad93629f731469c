"""Dead letters: dead records as records of a topic, and back. Pure.

1. A letter has the key and the value of its record. Its headers are the place and the reason, as texts.
2. `records_of_letters` undoes `as_letters`, except for the reason.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from gnomon.spark.columns import HEADERS, SCHEMA
from gnomon.spark.pipelines.tasks.decoding import PLACES, READ_SCHEMA

LETTER_SCHEMA: Final = READ_SCHEMA.append(SCHEMA.field("headers"))
"""The columns of a topic of letters that are read."""


class RecordsRefused(Exception):
    """Records cannot become rows, and the pipeline's settings do not allow that."""


def as_letters(dead: pa.RecordBatch) -> pa.RecordBatch:
    """Dead records as rows of the sink: the bytes as they were, the place and the reason as headers."""
    names = [f"_{name}" for name in (*PLACES, "reason")]
    texts = [dead.column(name).cast(pa.string()).to_pylist() for name in (*PLACES, "reason")]
    headers = [
        [{"key": name, "value": text.encode()} for name, text in zip(names, row, strict=True)]
        for row in zip(*texts, strict=True)
    ]
    columns = {"key": dead.column("key"), "value": dead.column("value"), "headers": pa.array(headers, HEADERS)}
    return pa.RecordBatch.from_pydict(columns)


def records_of_letters(letters: pa.RecordBatch) -> pa.RecordBatch:
    """The records (READ_SCHEMA) that are in some letters (LETTER_SCHEMA), with the places that they had.

    Raises:
        RecordsRefused: one of them is no letter.
    """
    read = letters.cast(LETTER_SCHEMA)
    headers = [{pair["key"]: pair["value"] for pair in pairs or ()} for pairs in read.column("headers").to_pylist()]
    for row, found in enumerate(headers):
        missing = [name for name in PLACES if found.get(f"_{name}") is None]
        if missing:
            topic, partition, offset = (read.column(name)[row].as_py() for name in PLACES[:3])
            raise RecordsRefused(
                f"topic {topic!r}, partition {partition}, offset {offset}: no dead letter of a pipeline: it has no"
                f" header '_{missing[0]}'"
            )
    places = [
        pa.array([found[f"_{name}"].decode() for found in headers], pa.string()).cast(READ_SCHEMA.field(name).type)
        for name in PLACES
    ]
    return pa.RecordBatch.from_arrays([read.column("key"), read.column("value"), *places], schema=READ_SCHEMA)
