"""The checker of decisions finds drivers that disagree (numbers: its rules), and accepts those that agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gnomon.spark.decisions import Decisions, Proposal
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.sinks.decision_checker import VOID, decision_checker

WRITERS = {"only": "sink", "a": "taken", "b": "taken"}


def proposed(number: int, after: int, *, query: str = "only", content: bytes = b"rows") -> Proposal:
    return Proposal(number, after, query, number, True, 9_000, {}, {}, {}, content)


def judged(act: Callable[[], None]) -> Coverage:
    """Judges what drivers read; returns the counters."""

    async def scenario(simulation: Simulation) -> None:
        with decision_checker(simulation, WRITERS):
            act()
            await simulation.sleep(1)

    return simulate(1, scenario).coverage


def test_drivers_that_agree_are_accepted_and_void_proposals_are_counted() -> None:
    log = [proposed(1, -1), proposed(1, -1, content=b"late"), proposed(2, 0), proposed(2, 0, content=b"late")]

    def act() -> None:
        for begin in (0, 2):  # the log of the second driver begins with decision 2
            driver = Decisions()
            decided = [driver.read(offset, log[offset]) for offset in range(begin, 4)]
            assert decided == [True, False] * (2 - begin // 2)

    assert judged(act).counts[VOID] == 3


def test_writers_have_numbers_of_their_own() -> None:
    def act() -> None:
        assert Decisions().read(0, proposed(1, -1))
        assert Decisions().read(7, proposed(1, -1, query="a"))

    judged(act)


@pytest.mark.parametrize(
    ("offset", "other"),
    [(0, proposed(1, -1, content=b"other rows")), (1, proposed(1, -1)), (1, proposed(1, -1, content=b"other rows"))],
    ids=["content", "place", "both"],
)
def test_two_decisions_of_one_number_are_found(offset: int, other: Proposal) -> None:  # 1
    def act() -> None:
        assert Decisions().read(0, proposed(1, -1))
        assert Decisions().read(offset, other)

    with pytest.raises(SimulationFailed, match=f"decision 1 of writer sink is at 0, and at {offset}"):
        judged(act)


def test_the_queries_of_a_writer_share_its_numbers() -> None:  # 1
    def act() -> None:
        assert Decisions().read(0, proposed(1, -1, query="a"))
        assert Decisions().read(1, proposed(1, -1, query="b"))

    with pytest.raises(SimulationFailed, match="decision 1 of writer taken is at 0, and at 1"):
        judged(act)


def test_a_decision_without_the_one_before_it_is_found() -> None:  # 2
    def act() -> None:
        assert Decisions().read(0, proposed(1, -1))
        assert Decisions().read(5, proposed(3, 4))

    with pytest.raises(SimulationFailed, match="decision 3 of writer sink has none before it"):
        judged(act)
