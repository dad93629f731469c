"""The decision on a batch in a folder of Parquet files: the files that are the batch. Pure.

1. A manifest that was written is read, and content of another form is refused.
2. A path in it stays in the folder of the table, and a staged name in the folder of the staged files.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from gnomon.spark.tables.data_files.data_file import STAGED_SUFFIX, DataFile
from gnomon.spark.tables.data_files.partition_values import folder_of
from gnomon.spark.tables.table import BadTable, TableBatch

NUMBER_DIGITS: Final = 20
SUFFIX: Final = ".json"
_FORMAT: Final = 1
_FIELDS: Final = {"format", "pipeline", "number", "query", "batch", "columns", "schema", "partitionBy", "files"}


class StagedFile(NamedTuple):
    """A file of a batch."""

    staged: str
    """Its name among the staged files."""
    path: str
    """Its path in the table."""
    rows: int
    bytes: int


class Manifest(NamedTuple):
    """The record of a batch; the manifests of a pipeline are numbered from 0 without a gap."""

    pipeline: str
    number: int
    batch: TableBatch
    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: tuple[StagedFile, ...]

    def encode(self) -> bytes:
        """The manifest as JSON; the columns are there for people, and the schema for programs."""
        members = {
            "format": _FORMAT,
            "pipeline": self.pipeline,
            "number": self.number,
            "query": self.batch.query,
            "batch": self.batch.number,
            "columns": _columns(self.schema),
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "partitionBy": self.partition_by,
            "files": [file._asdict() for file in self.files],
        }
        return json.dumps(members, ensure_ascii=False, indent=1).encode()


def manifest_name(number: int) -> str:
    """The name of the manifest of this number."""
    return f"{number:0{NUMBER_DIGITS}}{SUFFIX}"


def number_in(name: str) -> int | None:
    """The number of the manifest of this name; None if it is no name of a manifest."""
    digits = name.removesuffix(SUFFIX)
    is_name = name.endswith(SUFFIX) and len(digits) == NUMBER_DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_name else None


def staged_files(files: Sequence[DataFile], partition_by: Sequence[str]) -> tuple[StagedFile, ...]:
    """The staged files of a batch with their paths in the table."""
    found = []
    for file in files:
        name = f"{file.path.removesuffix(STAGED_SUFFIX)}.parquet"
        folder = folder_of(partition_by, file.partition)
        found.append(StagedFile(file.path, f"{folder}/{name}" if folder else name, file.rows, file.bytes))
    return tuple(found)


def decoded(content: bytes, place: str, pipeline: str, number: int) -> Manifest:
    """The manifest of this number of a pipeline.

    Raises:
        BadTable: the content is another one.
    """
    try:
        members = json.loads(content)
        if members["format"] != _FORMAT:
            raise BadTable(f"{place}: manifests of format {members['format']!r:.20} are unknown: upgrade gnomon")
        found = _manifest(members)
    except (ValueError, TypeError, KeyError, AttributeError, OSError, pa.ArrowException) as error:
        text = f"{place} is no manifest of a pipeline ({error}): restore the file, or write to another folder"
        raise BadTable(text) from None
    if found.pipeline != pipeline or found.number != number:
        raise BadTable(
            f"{place} is manifest {found.number} of the pipeline {found.pipeline!r}: the file was moved or copied;"
            " put it back, or write to another folder"
        )
    return found


def _manifest(members: dict[str, Any]) -> Manifest:
    """The manifest that these members say.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, OSError, ArrowException: they say none.
    """
    if set(members) != _FIELDS:
        raise ValueError("other members")
    files = tuple(StagedFile(each["staged"], each["path"], each["rows"], each["bytes"]) for each in members["files"])
    found = Manifest(
        members["pipeline"],
        members["number"],
        TableBatch(members["query"], members["batch"]),
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(members["schema"], validate=True))),
        tuple(members["partitionBy"]),
        files,
    )
    numbers = [found.number, found.batch.number, *(each for file in files for each in (file.rows, file.bytes))]
    texts = [found.pipeline, found.batch.query, *found.partition_by, *(file.path for file in files)]
    if not all(type(each) is int and each >= 0 for each in numbers) or not all(type(each) is str for each in texts):
        raise ValueError("a member of another type")
    if members["columns"] != _columns(found.schema):
        raise ValueError("columns of another schema")
    for file in files:
        if not file.staged.endswith(STAGED_SUFFIX) or "/" in file.staged or not _is_inside(file.path):
            raise ValueError(f"the path {file.path!r} of {file.staged!r}")
    return found


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _is_inside(path: str) -> bool:
    names = path.split("/")
    return path.endswith(".parquet") and not any(name in ("", ".", "..") or "\0" in name for name in names)
