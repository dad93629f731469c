"""Flights as records (bench/flights/flight.py)."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from bench.flights.flight import Flight, parse_flights, read_flights

CSV = b"""year,dep_delay,carrier,tailnum,time_hour
2013,-4,UA,N14228,2013-01-01T10:00:00Z
2013,,9E,,2013-01-01T11:00:00Z
2013,NA,US,NA,2013-01-01T12:00:00Z
"""


def test_numbers_become_numbers_and_text_stays_text() -> None:
    flight = next(parse_flights(io.BytesIO(CSV)))
    assert flight.carrier == "UA"
    assert json.loads(flight.document) == {
        "year": 2013,
        "dep_delay": -4,
        "carrier": "UA",
        "tailnum": "N14228",
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_missing_values_become_null() -> None:
    _, unnamed, not_available = parse_flights(io.BytesIO(CSV))
    for flight in (unnamed, not_available):
        document = json.loads(flight.document)
        assert (document["dep_delay"], document["tailnum"]) == (None, None)


def test_a_carrier_that_starts_with_a_digit_stays_a_text() -> None:
    assert json.loads(list(parse_flights(io.BytesIO(CSV)))[1].document)["carrier"] == "9E"


def test_a_zipped_file_gives_its_flights_in_order(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", CSV)
    flights: list[Flight] = list(read_flights(tmp_path / "flights.csv.zip"))
    assert [flight.carrier for flight in flights] == ["UA", "9E", "US"]
