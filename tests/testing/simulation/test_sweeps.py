from __future__ import annotations

import pytest

from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.simulation.sweeps import FAILURES_MAX, sweep


async def nap(simulation: Simulation) -> None:
    """Takes as many virtual seconds as its seed; 7 fails."""
    seconds = int(simulation.seed)
    simulation.coverage.count(f"fault/{seconds % 2}")
    await simulation.sleep(seconds)
    assert seconds != 7, "seven"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_sweep_returns_the_sums_of_all_seeds(processes: int) -> None:
    told: list[None] = []
    result = sweep(nap, range(6), processes=processes, after_each=lambda: told.append(None))
    assert (result.seeds, result.virtual_seconds, result.faults, len(told)) == (6, 15.0, 6, 6)
    assert result.coverage.counts == {"fault/0": 3, "fault/1": 3}


@pytest.mark.parametrize("processes", [1, 2])
def test_a_seed_that_fails_fails_the_sweep_with_its_error_and_its_number(processes: int) -> None:
    with pytest.raises(AssertionError, match="seven") as failed:
        sweep(nap, range(9), processes=processes)
    assert any("seed 7" in note for note in failed.value.__notes__)


async def odd(simulation: Simulation) -> None:
    """Odd seeds fail."""
    await simulation.sleep(1)
    assert int(simulation.seed) % 2 == 0, f"{simulation.seed} is odd"


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("seeds", "found"), [(4, [1, 3]), (100, None)])
def test_a_sweep_shows_the_errors_of_all_its_seeds_up_to_a_bound(
    processes: int, seeds: int, found: list[int] | None
) -> None:
    with pytest.raises(ExceptionGroup) as failed:
        sweep(odd, range(seeds), processes=processes)
    shown = [int(str(error).split()[0]) for error in failed.value.exceptions]
    assert all(seed % 2 for seed in shown)
    assert shown == found if found else len(shown) == FAILURES_MAX


def test_a_sweep_has_the_largest_measurement_of_all_its_seeds() -> None:
    async def measuring(simulation: Simulation) -> None:
        for value in (1.0, float(simulation.seed), 0.5):
            simulation.coverage.measure("seconds", value)

    assert sweep(measuring, [2, 7, 3]).coverage.largest == {"seconds": 7.0}
