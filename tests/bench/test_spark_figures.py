"""The bench with Spark: its rotation, its file of figures, its goals and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.generator import Figures, GeneratorFailed
from bench.reports.summary import Measured, Skipped
from bench.spark.goals import WORDS, goals, verdicts
from bench.spark.page import write_page
from bench.spark.part import PARTS
from bench.spark.parts.reads import ALL, BEST, BOOKIES, DEFAULTS
from bench.spark.record import SparkRecord
from bench.spark.scale import SparkScale
from bench.spark.topic import documents, noise
from bench.spark.trial import PartRun, Trial
from bench.workspace import Workspace

PART = "read-cluster"


@pytest.fixture
def run(tmp_path: Path) -> PartRun:
    """A run of a part with two rounds after a warm-up."""
    record = SparkRecord(tmp_path)
    record.begin(PART, "100 rows")
    scale = SparkScale(rows=100, rounds=2, warm_ups=1)
    return PartRun(PART, Workspace(tmp_path, tmp_path, tmp_path), scale, record, lambda line: None)


def test_each_round_begins_with_another_system_and_warm_ups_do_not_count(run: PartRun) -> None:
    asked: list[str] = []

    def trial(system: str) -> Trial:
        def measure() -> Figures:
            asked.append(system)
            return {"rate": float(len(asked))}

        return Trial(ALL, system, measure)

    run.measure([trial("a"), trial("b")])
    assert asked == ["b", "a", "a", "b", "b", "a"]
    spread = run.record.summary().spread(f"{PART}: {ALL}", "a", "rate")
    assert spread is not None
    assert (spread.minimum, spread.maximum) == (3.0, 6.0)


def test_a_system_that_fails_is_named_and_not_asked_again(run: PartRun) -> None:
    asked = []

    def fail() -> Figures:
        asked.append(1)
        raise GeneratorFailed("no rows")

    run.measure([Trial(ALL, BEST, fail), Trial(ALL, BOOKIES, lambda: {"rate": 1.0})])
    assert (len(asked), run.failed) == (1, True)
    write_page(run.record, run.folder)
    page = (run.folder / "spark-figures.md").read_text()
    assert f"Failed: {ALL}, {BEST}: no rows" in page
    assert f"| {ALL} | {BEST} | – | – | – | – | 0 |" in page
    assert f"| {ALL} | {BOOKIES} | 1 |" in page


def test_goals_compare_medians_and_a_new_measurement_replaces_the_old_one(run: PartRun, tmp_path: Path) -> None:
    for rate in (1.0, 9.0, 2.6):
        run.note(ALL, BOOKIES, Measured({"rate": rate, "brokers_us": 0.01}))
        run.note(ALL, BEST, Measured({"rate": 2.0}))
    run.note(ALL, DEFAULTS, Skipped("no mvn on the path"))
    found = {(each.goal.figure, each.goal.peer): WORDS[each.status] for each in verdicts(SparkRecord(tmp_path))}
    assert found == {("rate", BEST): "met", ("rate", DEFAULTS): "not measured", ("brokers_us", ""): "met"}
    again = SparkRecord(tmp_path)
    again.begin(PART, "200 rows")
    assert again.has(PART), "the earlier figures stay until there are others"
    again.add(PART, ALL, BOOKIES, Measured({"rate": 1.0}))
    assert list(again.cases(PART)) == [(ALL, [BOOKIES])]
    assert list(json.loads((tmp_path / "spark-figures.json").read_text())[PART]["cases"][ALL]) == [BOOKIES]


def test_every_goal_is_one_of_a_part_and_of_a_figure_in_its_table() -> None:
    figures = {part.name: {column.figure for column in part.columns} for part in PARTS}
    assert [goal for goal in goals() if goal.figure not in figures[goal.scenario.partition(":")[0]]] == []


def test_values_have_their_size_and_documents_are_json_objects() -> None:
    assert {len(value) for value in noise(3_000, 1_000)} == {1_000}
    rows = [json.loads(document) for document in documents(100)]
    assert [row["id"] for row in rows] == list(range(100))
    assert {tuple(row) for row in rows} == {("id", "customer", "at", "amount", "paid")}
