"""The last screen of the second act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bench.flights.group import Consumed
from bench.flights.report import rates, show_wrong, step_table, undelivered
from bench.flights.stored import Stored
from bench.flights.tally import Difference

SOURCE = "flights"
SHADOW = "flights-shadow"


@dataclass(frozen=True, slots=True)
class ReportedTopic:
    """A topic as the brokers describe it."""

    id: str
    """32 digits."""
    leaders: tuple[int, ...]
    """For each partition, the broker that serves it."""


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The results of the second act.

    Args:
        read_meanwhile: flights that were read from the shadow before the last one was acknowledged at the source.
        behind_seconds: from that acknowledgement until the group had all of them.
        refusal: the error for a producer to the shadow; empty when its record was accepted.
    """

    flights: int
    carriers: int
    value_bytes: int
    start_seconds: float
    produce_seconds: float
    failed: int
    failure: str
    consumed: Consumed
    read_meanwhile: int
    behind_seconds: float
    differences: Sequence[Difference]
    source: ReportedTopic
    shadow: ReportedTopic
    stored: Stored
    refusal: str

    @property
    def troubles(self) -> list[str]:
        """The faults besides the carriers that differ."""
        troubles = undelivered(self.failed, self.failure, self.consumed)
        if not self.read_meanwhile:
            troubles.append(f"{SHADOW} showed nothing while {SOURCE} was written")
        pairs = zip(self.source.leaders, self.shadow.leaders, strict=True)
        shared = [partition for partition, (one, other) in enumerate(pairs) if one == other]
        if shared:
            troubles.append(f"partitions {numbers(shared)} of both topics are served by one broker")
        if not self.stored.is_one_copy:
            troubles.append("the bookie holds more than one copy")
        if SOURCE not in self.refusal.replace(SHADOW, ""):
            troubles.append(f"a producer to {SHADOW} was not sent to its source: {self.refusal or 'nothing was said'}")
        return troubles

    @property
    def exit_code(self) -> int:
        return 1 if self.differences or self.troubles else 0

    def show(self, console: Console) -> None:
        console.print(self.rates())
        console.print(self.copies())
        if self.refusal:
            console.print(Text(f"a producer to {SHADOW} is told: {self.refusal}"), soft_wrap=True)
        show_wrong(console, self.differences, self.troubles)
        console.print(self.verdict())

    def verdict(self) -> RenderableType:
        if self.exit_code:
            differ = f"{len(self.differences)} of {self.carriers} carriers differ"
            return Text(f"FAILED: {differ if self.differences else 'see above'}", style="bold red")
        return Text(f"{self.flights:,} flights read from {SHADOW}: all of them, and stored once", style="bold green")

    def rates(self) -> Table:
        consumed = self.consumed
        megabytes = self.value_bytes / 1e6
        read = sum(tally.records for tally in consumed.tallies)
        shares = " + ".join(f"{tally.records:,}" for tally in consumed.tallies)
        table = step_table("a shadow, read while its source is written")
        table.add_row("metadata, a bookie, two brokers: start", f"{self.start_seconds:.2f}")
        table.add_row(f"produce to {SOURCE}", *rates(self.flights, megabytes, self.produce_seconds))
        table.add_row(
            f"consume from {SHADOW}: " + shares, *rates(read, megabytes * read / self.flights, consumed.seconds)
        )
        table.add_row(f"  {self.read_meanwhile:,} of them before the last was written")
        table.add_row("  the rest, after it was", f"{self.behind_seconds:.2f}")
        return table

    def copies(self) -> Table:
        stored = self.stored
        table = Table(title="what is stored of them", title_justify="left")
        table.add_column("")
        for heading in ("brokers of the partitions", "entries", "MB"):
            table.add_column(heading, justify="right")
        table.add_row(
            SOURCE, numbers(self.source.leaders), f"{stored.source_entries:,}", megabytes(stored.source_bytes)
        )
        table.add_row(
            SHADOW, numbers(self.shadow.leaders), f"{stored.shadow_entries:,}", megabytes(stored.shadow_bytes)
        )
        table.add_row("consumers' offsets", "", "", megabytes(stored.offsets_bytes))
        table.add_row("the bookie's file", "", "", megabytes(stored.bookie_bytes))
        return table


def numbers(some: Sequence[int]) -> str:
    return ", ".join(map(str, some))


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f}"
