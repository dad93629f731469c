from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.runtime.outcome import committed, outcome_of
from gnomon.runtime.world import DiskFull

Done = Callable[[Any, Exception | None], None]


def test_a_result_that_is_reported_at_once_is_returned() -> None:
    def start(done: Done) -> None:
        done(7, None)

    async def main() -> None:
        assert await outcome_of(start) == 7

    trio.run(main)


def test_a_result_that_is_reported_later_is_waited_for() -> None:
    async def main() -> None:
        asked: list[Done] = []
        results: list[int] = []

        async def wait() -> None:
            results.append(await outcome_of(asked.append))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert results == []
            asked[0](8, None)
        assert results == [8]

    trio.run(main)


def test_a_reported_error_is_raised() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="why"):
            await outcome_of(lambda done: done(None, ValueError("why")))

    trio.run(main)


class _FullEnvironment:
    """An environment that answers every operation with the same error object."""

    def __init__(self) -> None:
        self.error = DiskFull("no room")

    def submit(self, _operation: object, done: Done) -> None:
        done(None, self.error)


def test_each_operation_of_a_failed_group_raises_an_error_of_its_own() -> None:
    async def main() -> None:
        environment: Any = _FullEnvironment()
        raised = []
        for _ in range(2):
            with pytest.raises(DiskFull, match="no room") as caught:
                await committed(environment, lambda transaction: transaction)
            raised.append(caught.value)
        assert raised[0] is not raised[1]
        assert all(error.__cause__ is environment.error for error in raised)

    trio.run(main)
