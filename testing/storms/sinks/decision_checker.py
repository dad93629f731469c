"""Checks that all drivers of a storm agree about the decisions of a writer, and counts the branches that they take.

    with decision_checker(simulation, {"only": "sink", "a": "taken", "b": "taken"}):
        ...

1. A decision of a writer has one number, one place among the proposals, and one content, for every driver.
2. A decision follows the one before it: no driver sees decision n + 1 before some driver has seen decision n.

The product has no hook for the checker: its functions are wrapped from outside. A finding ends the simulation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from gnomon.spark.decisions import Decisions, Proposal
from gnomon.spark.writing import committing
from gnomon.spark.writing.applying import PartitionApplication
from gnomon.spark.writing.writer_topic import WriterTopic
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.patches import Patches
from gnomon.wire.kafka.errors import ErrorCode

VOID, BEHIND_VOID, STAGED_CONTENT = "sinks/void proposal", "sinks/log begins with a void one", "sinks/content staged"
GONE, SEARCHED, NEW_PRODUCER = "sinks/staged batches gone", "sinks/batches found in a target", "sinks/new producer id"
GAP, OVERTAKEN, RESUMED = "sinks/repeat after a gap", "sinks/overtaken by a decision", "sinks/resumed"
OFTEN = (VOID, STAGED_CONTENT, GONE, NEW_PRODUCER, RESUMED)
"""The branches that a few seeds reach."""
RARE = (BEHIND_VOID, SEARCHED, GAP, OVERTAKEN)
"""The branches that some hundred seeds reach. Repeats are not counted: a broker of gnomon answers them like the first
copy."""


@contextmanager
def decision_checker(simulation: Simulation, writers: Mapping[str, str]) -> Iterator[None]:
    """Checks during the block.

    Args:
        writers: the writer of each query.
    """
    judge = _DecisionJudge(simulation, writers)

    def read(before: Callable[[Decisions, int, Proposal], bool]) -> Any:
        def followed(decisions: Decisions, offset: int, proposal: Proposal) -> bool:
            decided = before(decisions, offset, proposal)
            if decided:
                judge.decided(offset, proposal)
            else:
                simulation.coverage.count(VOID)
            return decided

        return followed

    with ExitStack() as stack:
        patch = Patches(stack)
        patch(Decisions, "read", read)
        _count_branches(patch, simulation.coverage)
        yield


class _DecisionJudge:
    """Knows the decisions that some driver has read."""

    def __init__(self, simulation: Simulation, writers: Mapping[str, str]) -> None:
        self._simulation, self._writers = simulation, writers
        self._known: dict[tuple[str, int], tuple[int, bytes]] = {}

    def decided(self, offset: int, proposal: Proposal) -> None:
        """A driver has read this decision."""
        writer, here = self._writers[proposal.query], (offset, proposal.encode())
        if proposal.number > 1 and (writer, proposal.number - 1) not in self._known:
            self._fail(f"decision {proposal.number} of writer {writer} has none before it")
        known = self._known.setdefault((writer, proposal.number), here)
        if known != here:
            self._fail(f"decision {proposal.number} of writer {writer} is at {known[0]}, and at {offset}")

    def _fail(self, text: str) -> None:
        self._simulation.fail("decision checker", AssertionError(text))


def _count_branches(patch: Patches, coverage: Coverage) -> None:
    def first_decision(before: Callable[[Sequence[Any]], int]) -> Any:
        def followed(log: Sequence[Any]) -> int:
            index = before(log)
            coverage.count(BEHIND_VOID, index > 0)
            return index

        return followed

    def deliver(before: Callable[..., Awaitable[bool]]) -> Any:
        async def followed(*given: Any) -> bool:
            complete = await before(*given)
            coverage.count(GONE, not complete)
            return complete

        return followed

    def delivered_before(before: Callable[..., Awaitable[dict[Any, int]]]) -> Any:
        async def followed(*given: Any) -> dict[Any, int]:
            found = await before(*given)
            coverage.count(SEARCHED, any(found.values()))
            return found

        return followed

    def answered(before: Callable[[PartitionApplication, ErrorCode | None], None]) -> Any:
        def followed(application: PartitionApplication, code: ErrorCode | None) -> None:
            applied = application.applied
            before(application, code)
            if code is None or code.retriable:
                coverage.count(RESUMED)
            elif code in _REPEATS:
                coverage.count(_REPEATS[code], application.applied > applied)

        return followed

    patch(committing, "first_decision", first_decision)
    patch(committing, "deliver", deliver)
    patch(committing, "delivered_before", delivered_before)
    patch(committing, "new_producer_id", _counted(coverage, NEW_PRODUCER))
    patch(WriterTopic, "stage_content", _counted(coverage, STAGED_CONTENT))
    patch(PartitionApplication, "answered", answered)


_REPEATS: Mapping[ErrorCode, str] = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: GAP,
    ErrorCode.INVALID_PRODUCER_EPOCH: OVERTAKEN,
}


def _counted(coverage: Coverage, name: str) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
    def wrap(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(*given: Any) -> Any:
            coverage.count(name)
            return await before(*given)

        return followed

    return wrap
