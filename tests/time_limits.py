"""The time limits of tests: a test that hangs fails by its name, in each target.

The limit of most tests is pytest's option `timeout` in pyproject.toml. The tests of some folders take as long as a
variable asks for, and those of others need a process or a build each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SECONDS_OF_A_UNIT: Final = {
    "simulation": ("SEEDS", 30.0),
    "damage": ("PLACES", 20.0),
    "promises": ("SEEKS", 10.0),
    "chaos": ("MINUTES", 120.0),
    "chaos_spark": ("RUNS", 240.0),
    "fuzz": ("CHANGES", 0.002),
}
"""By folder: the variable that asks for more work, and the seconds that one unit of it takes at most."""
SECONDS: Final = {"attacks": 900.0, "conformance": 1800.0}
"""By folder: a fixed limit. Conformance fetches the tools of other languages, and builds with them."""


def seconds_max(folder: str, variables: Mapping[str, str], default_seconds: float) -> float:
    """The time limit of a test.

    Args:
        folder: the folder of the test below `tests`.
        variables: of the environment.
        default_seconds: the limit of a test that needs no other one.
    """
    if folder in SECONDS:
        return SECONDS[folder]
    if folder not in SECONDS_OF_A_UNIT:
        return default_seconds
    variable, seconds = SECONDS_OF_A_UNIT[folder]
    return default_seconds + seconds * float(variables.get(variable) or 0)
