from __future__ import annotations

import pytest

from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.simulation.sweeps import sweep


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
def test_a_seed_that_fails_ends_the_sweep_with_its_error_and_its_number(processes: int) -> None:
    with pytest.raises(AssertionError, match="seven") as failed:
        sweep(nap, range(9), processes=processes)
    assert any("seed 7" in note for note in failed.value.__notes__)
