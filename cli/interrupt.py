"""Lets a SIGTERM interrupt a blocking command as a SIGINT does."""

from __future__ import annotations

import signal
from types import FrameType


def interrupt_on_sigterm() -> None:
    """From now on, a SIGTERM raises KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
