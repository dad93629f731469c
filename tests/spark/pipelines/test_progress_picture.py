"""The picture of a run (`spark.pipelines.progress_picture`)."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pip install 'gnomon[lake]'")

from gnomon.spark.pipelines.progress import BatchProgress
from gnomon.spark.pipelines.progress_picture import (
    STEPS_MAX,
    EndedBatch,
    draw_progress,
    lags,
    rates,
    step_edges,
)


def ended(at_seconds: float, rows: int, seconds: float, lag: int | None = 0) -> EndedBatch:
    return EndedBatch(at_seconds, BatchProgress(0, "committed", rows, 0, 0, seconds, 0.0, lag, None, None))


MANY = [ended(3.0 * number + 3.0, 100 + number % 7, 2.0, 10_000 - number) for number in range(10_000)]


@pytest.mark.parametrize(
    "batches",
    [
        [ended(5.0, 1_000, 2.0)],
        [ended(5.0, 1_000, 2.0), ended(7.1, 50, 2.0), ended(12.0, 70, 1.0)],
        [ended(5.0, 10, 9.0), ended(5.0, 20, 0.0), ended(5.0, 30, 0.0)],
        MANY,
    ],
)
def test_the_area_below_the_rate_is_the_number_of_rows(batches: list[EndedBatch]) -> None:
    """Invariant 1."""
    edges = step_edges(batches, batches[-1].at_seconds + 1.0)
    area = float(np.sum(rates(batches, edges) * np.diff(edges)))
    assert area == pytest.approx(sum(batch.progress.rows for batch in batches))


def test_each_of_few_batches_has_a_step_of_its_own() -> None:
    """Invariant 2: a gap in which Spark plans a batch belongs to it, and an idle time does not."""
    batches = [ended(2.0, 100, 2.0), ended(6.0, 80, 2.5), ended(11.0, 50, 1.0)]
    edges = step_edges(batches, 12.0)
    assert edges.tolist() == pytest.approx([0.0, 2.0, 6.0, 10.0, 11.0])
    assert rates(batches, edges).tolist() == pytest.approx([50.0, 20.0, 0.0, 50.0])


def test_steps_are_equal_where_those_of_the_batches_could_not_be_seen() -> None:
    """Invariant 2."""
    for batches in ([ended(600.0 * number + 5.0, 10, 1.0) for number in range(30)], MANY):
        edges = step_edges(batches, 30_100.0)
        assert np.allclose(np.diff(edges), 30_100.0 / STEPS_MAX)


def test_the_line_of_many_batches_has_the_highest_known_lag_of_each_step() -> None:
    """Invariant 3."""
    batches = [ended(0.5, 1, 0.1, 5), ended(0.7, 1, 0.1, 9), ended(0.9, 1, 0.1, None), ended(2.5, 1, 0.1, 2)]
    assert lags(batches, np.linspace(0.0, 3.0, 4)) == [(0.7, 9), (2.5, 2)]
    assert len(lags(MANY, np.linspace(0.0, 30_000.0, STEPS_MAX + 1))) == STEPS_MAX


@pytest.mark.parametrize("batches", [[], [ended(2.0, 0, 1.0, None)], [ended(2.0, 7, 1.0)], MANY])
def test_a_run_of_any_number_of_batches_is_drawn(batches: list[EndedBatch], tmp_path: Path) -> None:
    draw_progress("orders", batches, 30_100.0 if batches is MANY else 3.0, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_name_that_ends_in_svg_makes_a_small_drawing(tmp_path: Path) -> None:
    draw_progress("orders", MANY, 30_100.0, tmp_path / "run.svg")
    assert ElementTree.parse(tmp_path / "run.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "run.svg").stat().st_size < 200_000


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        draw_progress("orders", [], 1.0, tmp_path / "missing" / "run.png")
