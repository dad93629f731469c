"""Arguments of native calls that are drawn, or changed in a drawn place."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (-2, -1, 0, 1, 2**31, 2**61, 2**62, 2**63 - 1, 2**64 - 1)


def drawn(draw: Random, depth: int = 0) -> Any:
    """Anything that msgpack has a form for."""
    kinds: list[Callable[[], Any]] = [
        lambda: None,
        lambda: draw.random() < 0.5,
        lambda: draw.choice(NUMBERS),
        lambda: draw.random() * 2.0**70,
        lambda: draw.choice(("orders", "", "none", "x" * draw.randrange(2000))),
        lambda: draw.randbytes(draw.choice((0, 1, 36, 37, 200))),
        lambda: [drawn(draw, depth + 1) for _ in range(draw.randrange(5))],
        lambda: {str(number): drawn(draw, depth + 1) for number in range(draw.randrange(3))},
    ]
    return draw.choice(kinds[: 6 if depth > 2 else None])()


def changed(draw: Random, given: list[Any]) -> list[Any]:
    """The arguments with one of them, or a part of it, drawn, doubled or left out."""
    args, at = [list(arg) if isinstance(arg, list) else arg for arg in given], draw.randrange(len(given))
    if isinstance(args[at], list) and draw.random() < 0.5:
        args[at] = changed(draw, args[at])
    elif draw.random() < 0.2:
        del args[at]
    elif draw.random() < 0.2:
        args.insert(at, args[at])
    else:
        args[at] = drawn(draw)
    return args
