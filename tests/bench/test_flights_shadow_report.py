"""The verdict on the second act (bench/flights/shadow_report.py)."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from bench.flights.flight import Flight
from bench.flights.group import Consumed
from bench.flights.shadow_report import ReportedTopic, ShadowReport
from bench.flights.stored import Stored
from bench.flights.tally import Census, Tally, differences

FLIGHTS = [Flight("UA", b"1"), Flight("B6", b"2")]
TOLD = "topic 'flights-shadow' is a shadow of 'flights': write to the source"


def found(first: list[Flight] = FLIGHTS[:1], second: list[Flight] = FLIGHTS[1:]) -> ShadowReport:
    """An act in which the two members read these flights."""
    census = Census(FLIGHTS)
    tallies = [Tally(census), Tally(census)]
    for partition, (tally, flights) in enumerate(zip(tallies, (first, second), strict=True)):
        for flight in flights:
            tally.add(partition, flight.carrier.encode(), flight.document)
    return ShadowReport(
        flights=2,
        carriers=2,
        value_bytes=1_000_000,
        start_seconds=1.0,
        produce_seconds=2.0,
        failed=0,
        failure="",
        consumed=Consumed(tallies, 0.1, 0.5),
        read_meanwhile=1,
        behind_seconds=0.25,
        differences=differences(census, Tally.sum(census, tallies)),
        source=ReportedTopic("a" * 32, (1, 2)),
        shadow=ReportedTopic("b" * 32, (2, 1)),
        stored=Stored(293, 12_800_000, 0, 0, 1000, 13_400_000),
        refusal=TOLD,
    )


def shown(what: ShadowReport) -> str:
    screen = io.StringIO()
    what.show(Console(file=screen, width=120))
    return screen.getvalue()


def test_an_act_whose_shadow_showed_all_and_stored_nothing_ends_with_0() -> None:
    text = shown(found())
    assert found().exit_code == 0
    assert "2 flights read from flights-shadow: all of them, and stored once" in text
    assert "FAILED" not in text
    assert TOLD in text
    assert [line for line in text.splitlines() if "1, 2" in line and "293" in line and "12.8" in line]
    assert [line for line in text.splitlines() if "2, 1" in line and " 0 " in line and "0.0" in line]


def test_a_flight_that_the_shadow_did_not_show_fails_the_act() -> None:
    lacking = found(second=[])
    assert lacking.exit_code == 1
    assert "FAILED: 1 of 2 carriers differ" in shown(lacking)


def test_each_defect_fails_the_act_and_is_reported() -> None:
    wrong = {
        "3 flights were not delivered: timed out": replace(found(), failed=3, failure="timed out"),
        "member 2 of the group read nothing": found(FLIGHTS, []),
        "flights-shadow showed nothing while flights was written": replace(found(), read_meanwhile=0),
        "partitions 1 of both topics are served by one broker": replace(
            found(), shadow=ReportedTopic("b" * 32, (2, 2))
        ),
        "the bookie holds more than one copy": replace(found(), stored=Stored(293, 12_800, 0, 0, 0, 25_600)),
        "a producer to flights-shadow was not sent to its source: nothing was said": replace(found(), refusal=""),
    }
    for words, act in wrong.items():
        assert act.exit_code == 1, words
        assert words in shown(act)
        assert "stored once" not in shown(act)
