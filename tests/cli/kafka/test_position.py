from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import pytest

from gnomon.cli.kafka.position import AtOffset, AtTime, LogEdge, Position, parse_position, parse_time, the_target

NOW = 1_769_884_200_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("earliest", LogEdge.EARLIEST),
        ("beginning", LogEdge.EARLIEST),
        ("end", LogEdge.LATEST),
        ("1200", AtOffset(1200)),
        ("@1769884200", AtTime(NOW)),
        ("@1769884200123", AtTime(NOW + 123)),
        ("2026-01-31T18:30:00Z", AtTime(NOW)),
        ("@2026-01-31T19:30:00.5+01:00", AtTime(NOW + 500)),
        ("-1h", AtTime(NOW - 3_600_000)),
        ("-1d2h3m4s5ms", AtTime(NOW - 93_784_005)),
        ("-9999999999999999w", AtTime(0)),
        ("1960-01-01T00:00:00Z", AtTime(0)),
    ],
)
def test_a_text_of_digits_is_an_offset_and_other_texts_are_edges_or_times(text: str, found: Position) -> None:
    """Invariants 1 and 2."""
    assert parse_position(text, NOW) == found


def test_a_time_without_a_zone_is_local() -> None:
    """Invariant 2."""
    assert parse_time("2026-01-31", NOW) == int(datetime(2026, 1, 31).timestamp() * 1000)


@pytest.mark.parametrize(
    "text", ["", "middle", "-", "-5", "-1y", "@", "@x", "-1h30", "1h", "²", "99999999999999999999"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|range"):
        parse_position(text, NOW)


@pytest.mark.parametrize("text", ["17", "@99999999999999999999", "yesterday"])
def test_a_time_is_no_bare_number(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    "values", [{"to_latest": False, "to_offset": None}, {"to_latest": True, "to_offset": 0}], ids=["none", "two"]
)
def test_a_move_has_exactly_one_target(values: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match=r"once: --to-earliest, .*--to-offset or --to-datetime$"):
        the_target(values)
    assert the_target({"to_latest": False, "to_offset": 0}) == ("to_offset", 0)
