"""The last screen: the rates if every flight came back exactly once, otherwise a table of the differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.flights.group import Consumed
from bench.flights.producing import ProducedFlights
from bench.flights.tally import Difference


@dataclass(frozen=True, slots=True)
class FlightReport:
    """The results of a run.

    Args:
        server_starts_seconds: the first start and the one after SIGKILL.
        server_cpu_seconds: processor time of the broker over both lives.
    """

    flights: int
    carriers: int
    produced: ProducedFlights
    consumed: Consumed
    differences: Sequence[Difference]
    server_starts_seconds: Sequence[float]
    server_cpu_seconds: float

    @property
    def troubles(self) -> list[str]:
        """The faults besides the carriers that differ."""
        return undelivered(self.produced.failed, self.produced.failure, self.consumed)

    @property
    def exit_code(self) -> int:
        return 1 if self.differences or self.troubles else 0

    def show(self, console: Console) -> None:
        console.print(self.rates())
        show_wrong(console, self.differences, self.troubles)
        console.print(self.verdict())

    def verdict(self) -> RenderableType:
        if self.exit_code:
            return Text(f"FAILED: {len(self.differences)} of {self.carriers} carriers differ", style="bold red")
        counted = f"{self.flights:,} flights of {self.carriers} carriers"
        return Text(f"{counted}: none lost, none twice, all in order", style="bold green")

    def rates(self) -> Table:
        produced, consumed = self.produced, self.consumed
        megabytes = produced.value_bytes / 1e6
        read = sum(tally.records for tally in consumed.tallies)
        shares = " + ".join(f"{tally.records:,}" for tally in consumed.tallies)
        table = step_table("a broker killed half-way, and what its clients saw")
        table.add_row("broker: start", f"{self.server_starts_seconds[0]:.2f}")
        table.add_row("produce, the outage included", *rates(self.flights, megabytes, produced.seconds))
        table.add_row(f"  outage, after {produced.killed_after:,} deliveries", f"{produced.outage_seconds:.2f}")
        table.add_row("  broker: restart after SIGKILL", f"{self.server_starts_seconds[-1]:.2f}")
        table.add_row("group of two: until both have partitions", f"{consumed.forming_seconds:.2f}")
        table.add_row("consume: " + shares, *rates(read, megabytes * read / self.flights, consumed.seconds))
        table.add_row("broker: processor time in all", f"{self.server_cpu_seconds:.2f}")
        return table


def undelivered(failed: int, failure: str, consumed: Consumed) -> list[str]:
    """The records that did not reach the broker, and the members of the group without records, in words."""
    troubles = [f"{failed:,} flights were not delivered: {failure}"] if failed else []
    for number, tally in enumerate(consumed.tallies, 1):
        if not tally.records:
            troubles.append(f"member {number} of the group read nothing")
    return troubles


def show_wrong(console: Console, differences: Sequence[Difference], troubles: Sequence[str]) -> None:
    """Shows the faults; nothing if there are none."""
    if differences:
        console.print(difference_table(differences))
    for trouble in troubles:
        console.print(Text(trouble, style="bold red"))


def step_table(title: str) -> Table:
    """A table for steps and their `rates`."""
    table = Table(title=title, title_justify="left")
    table.add_column("step")
    for heading in ("seconds", "msg/s", "MB/s"):
        table.add_column(heading, justify="right")
    return table


def rates(records: int, megabytes: float, seconds: float) -> tuple[str, str, str]:
    return f"{seconds:.2f}", f"{records / seconds:,.0f}", f"{megabytes / seconds:,.1f}"


def difference_table(found: Sequence[Difference]) -> Table:
    table = Table(title="carriers that differ", title_justify="left")
    for column in fields(Difference):
        table.add_column(column.name, justify="left" if column.name == "carrier" else "right")
    for difference in found:
        name, *counts = (getattr(difference, column.name) for column in fields(Difference))
        table.add_row(name or "(no key)", *(f"{count:,}" for count in counts))
    return table


def next_steps(program: Path, kept_bootstrap: str) -> Group:
    """Three commands for a newcomer to try, with the broker of this run if it still runs."""
    if kept_bootstrap:
        commands = [
            f"{program} topic describe flights --bootstrap-server {kept_bootstrap}",
            f"{program} group describe flights --bootstrap-server {kept_bootstrap}",
            f"{program} consume flights --bootstrap-server {kept_bootstrap}",
        ]
    else:
        commands = [f"{program} standalone", f"{program} topic create orders", f"{program} topic list"]
    return Group(Text("\nTry next:"), *(Text(f"  {command}", style="bold", no_wrap=True) for command in commands))
