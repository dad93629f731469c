"""The verdict on a run (bench/flights/report.py)."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console, RenderableType

from bench.flights.flight import Flight
from bench.flights.group import Consumed
from bench.flights.producing import ProducedFlights
from bench.flights.report import FlightReport, next_steps
from bench.flights.tally import Census, Tally, differences

FLIGHTS = [Flight("UA", b"1"), Flight("B6", b"2")]


def report(first: list[Flight], second: list[Flight], failed: int = 0) -> FlightReport:
    """A run in which the two members read these flights."""
    census = Census(FLIGHTS)
    tallies = [Tally(census), Tally(census)]
    for partition, (tally, flights) in enumerate(zip(tallies, (first, second), strict=True)):
        for flight in flights:
            tally.add(partition, flight.carrier.encode(), flight.document)
    found = differences(census, Tally.sum(census, tallies))
    produced = ProducedFlights(2.0, 1_000_000, 1, 0.5, failed, "timed out" if failed else "")
    return FlightReport(2, 2, produced, Consumed(tallies, 0.1, 0.5), found, [0.3, 0.4], 1.5)


def shown(what: FlightReport | RenderableType) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=120)
    if isinstance(what, FlightReport):
        what.show(console)
    else:
        console.print(what)
    return screen.getvalue()


def test_a_run_without_losses_ends_with_0_and_shows_its_rates() -> None:
    run = report(FLIGHTS[:1], FLIGHTS[1:])
    assert run.exit_code == 0
    text = shown(run)
    assert "2 flights of 2 carriers: none lost, none twice" in text
    assert "FAILED" not in text
    assert [word for word in text.splitlines() if "consume: 1 + 1" in word and "0.50" in word and "4" in word]


def test_a_lost_flight_fails_the_run_and_names_its_carrier() -> None:
    run = report(FLIGHTS[:1], FLIGHTS[:0])
    assert run.exit_code == 1
    text = shown(run)
    assert "FAILED: 1 of 2 carriers differ" in text
    assert "B6" in text
    assert "none lost" not in text


def test_a_flight_read_by_both_members_fails_the_run() -> None:
    run = report(FLIGHTS, FLIGHTS[1:])
    assert run.exit_code == 1
    assert [difference.repeated for difference in run.differences] == [1]


def test_a_member_that_read_nothing_fails_the_run() -> None:
    run = report(FLIGHTS, [])
    assert (run.exit_code, run.differences) == (1, [])
    assert "member 2 of the group read nothing" in shown(run)


def test_a_failed_delivery_fails_the_run_even_if_all_flights_were_read() -> None:
    run = report(FLIGHTS[:1], FLIGHTS[1:], failed=3)
    assert run.exit_code == 1
    assert "3 flights were not delivered: timed out" in shown(run)


def test_off_a_terminal_no_control_character_is_written() -> None:
    assert "\x1b" not in shown(report(FLIGHTS[:1], []))


def test_three_commands_are_proposed_with_the_address_of_a_kept_broker() -> None:
    for bootstrap in ("", "127.0.0.1:12345"):
        commands = [line for line in shown(next_steps(Path(".venv/bin/gnomon"), bootstrap)).splitlines() if "/" in line]
        assert len(commands) == 3
        assert all(command.endswith(f"--bootstrap-server {bootstrap}" if bootstrap else "") for command in commands)
