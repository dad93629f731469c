"""Offsets and times that bound what a pipeline reads, as options of commands and of the format `gnomon`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

TIME: Final = click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"])
"""A time with its offset from UTC, such as 2026-01-31T12:00:00Z."""


def starting_at(offsets: str | None, time: datetime | None) -> dict[str, str]:
    """The options of a read that starts at offsets or, if they are None, at a time."""
    if time is None:
        return {"startingOffsets": offsets or ""}
    return {"startingTimestamp": milliseconds(time), "startingOffsetsByTimestampStrategy": "latest"}


def milliseconds(time: datetime) -> str:
    """The milliseconds since 1970."""
    return str(int(time.timestamp() * 1000))
