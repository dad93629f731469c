"""The amounts of a fan-out's run: seconds, messages, subscriptions, consumers and shadows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FanoutScale:
    """The usual amounts; a quick run tries out the machinery with less."""

    seconds: float = 10.0
    """Length of each load."""
    subscriptions: tuple[int, ...] = (1_000, 10_000, 40_000, 100_000)
    spreads: tuple[int, ...] = (0, 1, 4)
    """Numbers of shadows over which subscriptions are spread, besides the source."""
    consumers: int = 2_000
    consumer_shadows: int = 3
    rates: tuple[int, ...] = (1_000, 50_000)
    """Messages a second at which the delay to a shadow is measured."""
    fans: tuple[int, ...] = (0, 1, 4, 16)
    """Numbers of shadows of a source during produce."""
    stored_messages: int = 2_000


QUICK = FanoutScale(
    seconds=3.0,
    subscriptions=(1_000, 4_000),
    spreads=(0, 1),
    consumers=100,
    rates=(1_000, 10_000),
    fans=(0, 2),
    stored_messages=200,
)
