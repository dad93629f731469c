from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest
import trio

from gnomon.runtime.background import background


async def broken() -> NoReturn:
    raise AssertionError("an invariant is broken")


async def interrupted() -> NoReturn:
    raise KeyboardInterrupt


def leaves(block: Callable[[], Awaitable[object]], *tasks: Callable[[], Awaitable[object]]) -> BaseException | None:
    """The exception that leaves two nested blocks, of which the inner one has these tasks."""

    async def main() -> BaseException | None:
        try:
            async with background() as outer, background() as nursery:
                outer.start_soon(trio.sleep_forever)
                for task in (trio.sleep_forever, *tasks):
                    nursery.start_soon(task)
                await block()
        except BaseException as error:
            return error
        return None

    return trio.run(main)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        KeyboardInterrupt(),
        SystemExit(3),
        StopAsyncIteration(),
        ExceptionGroup("mine", [KeyError("x")]),
        ExceptionGroup("mine", [ExceptionGroup("inner", [KeyError("x"), ValueError("y")])]),
    ],
    ids=repr,
)
def test_an_exception_of_the_block_leaves_it_unchanged(error: BaseException) -> None:
    async def block() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    assert leaves(block) is error


def test_a_block_without_an_exception_ends_its_tasks() -> None:
    assert leaves(trio.lowlevel.checkpoint) is None


def test_except_star_takes_an_exception_of_the_block() -> None:
    caught: list[BaseException] = []

    async def main() -> None:
        try:
            async with background():
                raise KeyError("x")
        except* KeyError as errors:
            caught.extend(errors.exceptions)

    trio.run(main)
    assert [type(error) for error in caught] == [KeyError]


def test_a_failure_of_a_background_task_cancels_the_block_and_leaves_it_in_a_group() -> None:
    error = leaves(trio.sleep_forever, broken)
    assert isinstance(error, ExceptionGroup)
    assert [type(inner) for inner in error.exceptions] == [AssertionError]


def test_a_block_that_fails_with_a_background_task_raises_both_errors() -> None:
    async def block() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("x")

    error = leaves(block, broken)
    assert isinstance(error, ExceptionGroup)
    assert [type(inner) for inner in error.exceptions] == [KeyError, AssertionError]


def test_an_exception_group_of_the_block_stays_intact_beside_an_error_of_a_background_task() -> None:
    async def block() -> None:
        async with trio.open_nursery() as nursery:

            async def fails_in_the_end() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    raise KeyError("x")

            nursery.start_soon(fails_in_the_end)
            nursery.start_soon(trio.sleep_forever)

    error = leaves(block, broken)
    assert isinstance(error, ExceptionGroup)
    of_block, of_task = error.exceptions
    assert isinstance(of_block, ExceptionGroup)
    assert [type(inner) for inner in of_block.exceptions] == [KeyError]
    assert isinstance(of_task, AssertionError)


def test_an_interrupt_in_a_background_task_leaves_the_block_without_a_group() -> None:
    error = leaves(trio.sleep_forever, interrupted)
    assert type(error) is KeyboardInterrupt
    both = leaves(trio.sleep_forever, interrupted, broken)
    assert type(both) is KeyboardInterrupt
    assert isinstance(both.__cause__, BaseExceptionGroup)
    assert both.__cause__.subgroup(AssertionError) is not None


def test_a_block_that_is_cancelled_from_outside_is_cancelled() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with background() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main)


def test_an_exception_of_a_block_cancelled_from_outside_leaves_it_unchanged() -> None:
    error = KeyError("x")

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with background() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                try:
                    await trio.sleep_forever()
                finally:
                    raise error

    with pytest.raises(KeyError) as caught:
        trio.run(main)
    assert caught.value is error


def test_an_exception_group_leaves_a_block_cancelled_from_outside_without_another_group() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with background() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                async with trio.open_nursery() as inner:
                    inner.start_soon(trio.sleep_forever)
                    raise KeyError("x")

    with pytest.raises(ExceptionGroup) as caught:
        trio.run(main)
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
