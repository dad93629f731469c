"""`python -m bench`: measures side by side gnomon as one node and as a cluster, the minimal server `floor`, Apache
Kafka, and for tables etcd, Redis and NATS."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from bench.cluster import Cluster
from bench.generator import Generators, GeneratorUnavailable
from bench.reports.goal import GOALS, judge
from bench.reports.picture import draw
from bench.reports.report import Report, number
from bench.reports.summary import Failed, Measured, Outcome, Summary
from bench.rounds import BenchRounds
from bench.scenario import Scenario
from bench.scenarios import SCENARIOS
from bench.stage import Scale, Stage
from bench.stores.etcd import Etcd
from bench.stores.nats import Nats
from bench.stores.redis import Redis
from bench.system import Floor, Gnomon, Kafka, KafkaSynced, System
from bench.workspace import Workspace

NAMES = ("gnomon", "cluster", "floor", "kafka", "kafka-synced", "etcd", "redis", "nats")
ROUNDS, QUICK_ROUNDS = 3, 1
REASON_CHARACTERS = 120
"""Length of the reason in a measurement's line; the whole reason is at the end."""
TABLE_WIDTH = 160
"""Columns the table needs; a narrower window or a pipe gets long lines rather than broken words."""
QUICK = Scale(
    seconds=0.5, partitions=200, ledgers=50, ledger_bytes=32 << 20, table_keys=20_000, large_table_keys=100_000
)


def chosen_systems(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    for name in names:
        if name not in NAMES:
            raise click.BadParameter(f"no system is called {name!r}: choose among {', '.join(NAMES)}")
    return names


def end_on_sigterm(number: int, frame: FrameType | None) -> None:
    """Unwinds like Ctrl-C, so that every server is stopped."""
    sys.exit(128 + number)


@click.command()
@click.option("--only", multiple=True, type=click.Choice([scenario.name for scenario in SCENARIOS]), help="Repeatable.")
@click.option("--systems", "names", default=",".join(NAMES), callback=chosen_systems, show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), help=f"How often each is measured. [{ROUNDS}; quick {QUICK_ROUNDS}]"
)
@click.option("--seconds", type=click.FloatRange(min=0.2), help="How long each load runs. [2.5; quick 0.5]")
@click.option("--partitions", type=click.IntRange(min=1), help="For the restart scenario. [5000; quick 200]")
@click.option("--quick", is_flag=True, help="Tries out the machinery; the figures say little.")
def main(
    only: tuple[str, ...],
    names: tuple[str, ...],
    rounds: int | None,
    seconds: float | None,
    partitions: int | None,
    quick: bool,
) -> None:
    """Measures gnomon beside its floor, Apache Kafka, and stores of keys and values; results go to bench/results/.

    Exits with 1 if a measurement failed; skipped ones and missed goals are shown, and fail nothing.
    """
    signal.signal(signal.SIGTERM, end_on_sigterm)
    usual = QUICK if quick else Scale()
    scale = replace(usual, seconds=seconds or usual.seconds, partitions=partitions or usual.partitions)
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    scenarios = [scenario for scenario in SCENARIOS if not only or scenario.name in only]
    workspace, progress = Workspace.make(), Console(stderr=True)

    def announce(number_of_round: int, system: str, scenario: Scenario, outcome: Outcome) -> None:
        head = f"round {number_of_round + 1}/{rounds}  {system:<12}  {scenario.name:<18}"
        progress.print(f"{head}{words(scenario, outcome)}", highlight=False, soft_wrap=True)

    summary = Summary()
    try:
        generators = Generators.build(workspace.cache)
        known = systems(workspace.cache)
        stages = [Stage(known[name], workspace, generators, scale) for name in names]
        BenchRounds(stages, scenarios, rounds, announce).run(summary)
    except GeneratorUnavailable as reason:
        raise click.ClickException(str(reason)) from None
    finally:
        workspace.remove()
    verdicts = [judge(goal, summary) for goal in GOALS if not only or goal.scenario in only]
    finish(Report(scenarios, names, rounds, scale, summary, verdicts), workspace, progress)


def systems(cache: Path) -> dict[str, System]:
    """All systems by name, in the order they are shown."""
    own, others = (Gnomon(), Cluster(), Floor()), (Kafka(cache), KafkaSynced(cache))
    stores = (Etcd(cache), Redis(cache), Nats(cache))
    return {system.name: system for system in (*own, *others, *stores)}


def words(scenario: Scenario, outcome: Outcome) -> str:
    if isinstance(outcome, Measured):
        shown = [column for column in scenario.columns if column.figure in outcome.figures]
        return ", ".join(f"{column.label} {number(outcome.figures[column.figure])} {column.unit}" for column in shown)
    kind = "FAILED" if isinstance(outcome, Failed) else "SKIPPED"
    return f"{kind}: {outcome.reason[:REASON_CHARACTERS]}"


def finish(report: Report, workspace: Workspace, progress: Console) -> None:
    """Shows the tables, writes JSON and picture, and lists the systems without figures."""
    shown = Console()
    report.show(shown if shown.width >= TABLE_WIDTH else Console(width=TABLE_WIDTH))
    written = [report.write_json(workspace.results)]
    try:
        draw(report, written[0].with_suffix(".png"))
        written.append(written[0].with_suffix(".png"))
    except GeneratorUnavailable as reason:
        progress.print(f"SKIPPED picture: {reason}")
    troubles = report.troubles()
    for line in troubles:
        progress.print(
            line,
            style="bold red" if line.startswith("FAILED") else "yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    progress.print("written: " + ", ".join(f"bench/results/{path.name}" for path in written), highlight=False)
    if any(line.startswith("FAILED") for line in troubles):
        sys.exit(1)


if __name__ == "__main__":
    main()
