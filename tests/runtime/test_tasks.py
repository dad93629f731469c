"""The numbers are the invariants of `runtime.tasks`."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gnomon.runtime.tasks import OwnTasks


def test_a_task_ends_with_its_owner_and_no_task_starts_after_it() -> None:  # 1
    tasks, told = OwnTasks(), list[str]()

    async def work(name: str) -> None:
        told.append(f"{name} began")
        try:
            await trio.sleep_forever()
        finally:
            told.append(f"{name} ended")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(tasks.run)
            tasks.start_soon(work, "one")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        tasks.start_soon(work, "another")
        await wait_all_tasks_blocked()

    trio.run(main)
    assert told == ["one began", "one ended"]


def test_an_error_of_a_task_ends_its_owner() -> None:  # 2
    async def broken() -> None:
        raise ValueError("broken")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            tasks = OwnTasks()
            await nursery.start(tasks.run)
            tasks.start_soon(broken)

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(main)
    assert raised.value.subgroup(lambda error: str(error) == "broken")


def test_a_task_is_not_started_before_its_owner_runs() -> None:
    with pytest.raises(AssertionError, match="does not run yet"):
        OwnTasks().start_soon(trio.sleep_forever)
