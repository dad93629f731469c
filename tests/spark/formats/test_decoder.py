from __future__ import annotations

import pyarrow as pa

from gnomon.spark.formats.decoder import REASON_CHARACTERS_MAX, Misfit, decode_together

SCHEMA = pa.schema([("n", pa.int64())])


def parse(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([int(value) for value in values], pa.int64())], schema=SCHEMA)


def test_misfits_are_found_among_values_and_the_rest_keeps_its_order() -> None:  # 1, 2
    found = decode_together(pa.array([b"1", b"x", None, b"2", b"3", b"y"], pa.binary()), SCHEMA, parse)
    assert found.columns.to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [misfit.row for misfit in found.misfits] == [1, 2, 5]
    assert found.misfits[1] == Misfit(2, "the value is null")
    assert "b'x'" in found.misfits[0].reason


def test_no_values_are_no_rows() -> None:
    found = decode_together(pa.array([], pa.binary()), SCHEMA, parse)
    assert found.columns.num_rows == 0
    assert found.columns.schema == SCHEMA
    assert found.misfits == []


def test_a_reason_is_cut() -> None:
    def refuse(values: list[bytes]) -> pa.RecordBatch:
        raise ValueError("x" * 1_000)

    found = decode_together(pa.array([b""], pa.binary()), SCHEMA, refuse)
    assert len(found.misfits[0].reason) == REASON_CHARACTERS_MAX
