"""The numbers are the invariants of `runtime.tasks`."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gnomon.runtime.tasks import OwnTasks, open_tasks


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


def test_after_its_block_every_task_has_ended_also_one_that_could_not_be_cancelled_at_once() -> None:  # 3
    told = list[str]()

    async def work() -> None:
        with trio.CancelScope(shield=True):
            for _ in range(3):
                await trio.lowlevel.cancel_shielded_checkpoint()  # as in a lock that is free
        told.append("the task uses the store")

    async def main() -> None:
        async with open_tasks() as tasks:
            tasks.start_soon(work)
        told.append("the store is closed")
        tasks.start_soon(work)
        await wait_all_tasks_blocked()

    trio.run(main)
    assert told == ["the task uses the store", "the store is closed"]
