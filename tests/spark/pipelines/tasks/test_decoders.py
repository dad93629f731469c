"""The decoder of each format (`spark.pipelines.tasks.decoders`)."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from gnomon.spark.formats.decoder import BadFormat
from gnomon.spark.formats.schema_registry import RegisteredSchema, SchemaRegistry, UnusableRegistry
from gnomon.spark.pipelines.settings.settings import FormatSettings
from gnomon.spark.pipelines.tasks.decoders import decoder_of

FIELD = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
AVRO = json.dumps(FIELD)
DDL = "a BIGINT"


def form(kind: str, **given: Any) -> FormatSettings:
    settings = {"schema": None, "schema_file": None, "registry": None, "delimiter": ",", "key": "none"} | given
    return FormatSettings(kind, **settings)


def avro(number: int, *, schema_id: int | None = None) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, FIELD, {"a": number})
    head = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return head + written.getvalue()


@pytest.mark.parametrize(
    ("settings", "value", "row"),
    [
        (form("json", schema=DDL), b'{"a": 7}', {"a": 7}),
        (form("csv", schema="a BIGINT, b STRING"), b"7,x", {"a": 7, "b": "x"}),
        (form("csv", schema="a BIGINT, b STRING", delimiter=";"), b"7;x,y", {"a": 7, "b": "x,y"}),
        (form("avro", schema=AVRO), avro(7), {"a": 7}),
        (form("text"), "seven \u00fc".encode(), {"value": "seven \u00fc"}),
        (form("raw"), b"\xff\0", {"value": b"\xff\0"}),
    ],
    ids=["json", "csv", "csv with another delimiter", "avro", "text", "raw"],
)
def test_each_format_has_its_decoder(settings: FormatSettings, value: bytes, row: dict[str, Any]) -> None:
    found = decoder_of(settings).decode(pa.array([value], pa.binary()))
    assert (found.columns.to_pylist(), found.misfits) == ([row], [])


def test_a_text_that_is_not_utf_8_does_not_fit() -> None:
    found = decoder_of(form("text")).decode(pa.array([b"\xff"], pa.binary()))
    assert [misfit.row for misfit in found.misfits] == [0]


def test_json_without_columns_names_the_command_that_infers_them() -> None:
    with pytest.raises(BadFormat, match="--write-schema"):
        decoder_of(form("json"))


def test_values_with_ids_are_decoded_by_the_schemas_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    wider = {**FIELD, "fields": [{"name": "b", "type": "string", "default": ""}, *FIELD["fields"]]}
    known = {1: ("AVRO", AVRO), 2: ("PROTOBUF", "message A {}"), 3: ("AVRO", json.dumps(wider))}

    def by_id(_registry: SchemaRegistry, number: int) -> RegisteredSchema:
        return RegisteredSchema(number, *known[number])

    monkeypatch.setattr(SchemaRegistry, "by_id", by_id)
    of_wider = io.BytesIO()
    fastavro.schemaless_writer(of_wider, wider, {"a": 9, "b": "x"})
    values = [avro(7, schema_id=1), avro(8, schema_id=2), b"\0\0\0\0\3" + of_wider.getvalue()]
    decoder = decoder_of(form("avro", schema=AVRO, registry="http://localhost:8081"))
    found = decoder.decode(pa.array(values, pa.binary()))
    assert found.columns.to_pylist() == [{"a": 7}, {"a": 9}]
    (misfit,) = found.misfits
    assert (misfit.row, misfit.reason) == (1, "schema 2: its kind in the registry is 'PROTOBUF', not Avro")


def test_a_registry_that_is_away_is_no_misfit_of_a_record() -> None:
    decoder = decoder_of(form("avro", schema=AVRO, registry="http://127.0.0.1:1"))
    with pytest.raises(UnusableRegistry, match=r"127\.0\.0\.1:1"):
        decoder.decode(pa.array([avro(7, schema_id=1)], pa.binary()))
