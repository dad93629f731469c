"""The manifests of folders of Parquet files."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.tables.manifest import Manifest, StagedFile, decoded, manifest_name, number_in, staged_files
from gnomon.spark.tables.table import BadTable, TableBatch

SCHEMA = pa.schema([("id", pa.int64()), ("days", pa.list_(pa.date32())), pa.field("x", pa.string(), nullable=False)])
MANIFEST = Manifest(
    "p", 7, TableBatch("q", 3), SCHEMA, ("day",), (StagedFile("u.staged", "day=2024-12-31/u.parquet", 5, 900),)
)


@given(st.integers(0, 10**20 - 1), st.text(), st.integers(0), st.lists(st.text(), max_size=3))
def test_a_manifest_is_read_as_it_was_written(number: int, query: str, batch: int, columns: list[str]) -> None:  # 1
    manifest = MANIFEST._replace(number=number, batch=TableBatch(query, batch), partition_by=tuple(columns))
    assert decoded(manifest.encode(), "m", "p", number) == manifest
    assert number_in(manifest_name(number)) == number


NUMBER = "0" * 20


@pytest.mark.parametrize("name", ["1.json", NUMBER, f".{NUMBER}.json", f"{NUMBER}.jsonx", f"{'٣' * 20}.json"])
def test_other_names_are_no_manifests(name: str) -> None:
    assert number_in(name) is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": "7"},
        {"number": -7},
        {"batch": True},
        {"query": 5},
        {"schema": "AAAA"},
        {"schema": "%"},
        {"columns": {"id": "int64"}},
        {"files": None},
        {"files": [{"staged": "u.staged"}]},
        {"files": [{"staged": "u.staged", "path": 5, "rows": 1, "bytes": 1}]},
        {"files": [{"staged": "u.staged", "path": "../u.parquet", "rows": 1, "bytes": 1}]},
        {"files": [{"staged": "u.staged", "path": "/u.parquet", "rows": 1, "bytes": 1}]},
        {"files": [{"staged": "u.staged", "path": "u.json", "rows": 1, "bytes": 1}]},
        {"files": [{"staged": "../u.staged", "path": "u.parquet", "rows": 1, "bytes": 1}]},
        {"files": [{"staged": "u.staged", "path": "u.parquet", "rows": "1", "bytes": 1}]},
        {"more": 1},
    ],
)
def test_a_changed_manifest_is_refused(change: dict[str, Any]) -> None:  # 1, 2
    members = {**json.loads(MANIFEST.encode()), **change}
    with pytest.raises(BadTable, match="m is no manifest of a pipeline"):
        decoded(json.dumps(members).encode(), "m", "p", 7)


@given(st.data())
def test_a_damaged_manifest_is_refused_or_read(data: st.DataObject) -> None:  # 1
    content = bytearray(MANIFEST.encode())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded(bytes(content), "m", "p", 7)
    except BadTable:
        pass


def test_a_manifest_of_another_number_is_refused() -> None:  # 1
    with pytest.raises(BadTable, match="m is manifest 7 of the pipeline 'p': the file was moved or copied"):
        decoded(MANIFEST.encode(), "m", "p", 8)


def test_staged_files_have_their_place_in_the_table() -> None:
    files = [DataFile("a.staged", 9, 1, ("x/y", None), ""), DataFile("b.staged", 8, 2, ("z", "1"), "")]
    assert [file.path for file in staged_files(files, ["k", "l"])] == [
        "k=x%2Fy/l=__HIVE_DEFAULT_PARTITION__/a.parquet",
        "k=z/l=1/b.parquet",
    ]
    assert staged_files([DataFile("a.staged", 9, 1, (), "")], []) == (StagedFile("a.staged", "a.parquet", 1, 9),)
