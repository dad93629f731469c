"""Runs Trio in a thread of its own, for programs that do not use Trio; other threads use the resources opened there."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

import trio

T = TypeVar("T")
P = ParamSpec("P")


class TrioThread:
    """Calls from any thread into the one that runs Trio."""

    def __init__(self, token: trio.lowlevel.TrioToken, ended: Callable[[], Exception]) -> None:
        """Calls go through `token`; `ended` makes the error for late calls."""
        self._token = token
        self._ended = ended

    def call(self, work: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        """Runs `work` in the Trio thread and returns its result.

        A thread that is interrupted while it waits (KeyboardInterrupt, a signal handler that raises) cancels the work.

        Raises:
            Exception: the error of `work`; or that of `ended`, once the block is over.
        """
        scope = trio.CancelScope()

        async def run() -> T:
            with scope:
                return await work(*args, **options)
            raise self._ended()  # the thread was interrupted: nobody waits for a result

        try:
            return trio.from_thread.run(run, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise self._ended() from None
        except BaseException:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(scope.cancel)  # no effect if the work itself has raised
            raise

    def soon(self, work: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
        """Schedules `work`, which must not raise, in the Trio thread after earlier calls; raises as `call`."""
        try:
            self._token.run_sync_soon(lambda: work(*args, **options))
        except trio.RunFinishedError:
            raise self._ended() from None


@contextmanager
def in_trio_thread(
    block: AbstractAsyncContextManager[T], name: str, ended: Callable[[], Exception]
) -> Iterator[tuple[T, TrioThread]]:
    """Enters `block` in a new thread called `name`, and leaves it when this block ends; raises as `block` does."""
    begun: SimpleQueue[tuple[T, TrioThread, Callable[[], None]] | BaseException] = SimpleQueue()
    failed: list[BaseException] = []

    async def serve() -> None:
        async with block as opened:
            stop = trio.Event()
            token = trio.lowlevel.current_trio_token()
            begun.put((opened, TrioThread(token, ended), lambda: token.run_sync_soon(stop.set)))
            await stop.wait()

    def run() -> None:
        try:
            trio.run(serve)
        except BaseException as error:
            failed.append(error)
            begun.put(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    first = begun.get()
    if isinstance(first, BaseException):
        raise first
    opened, calls, stop = first
    try:
        yield opened, calls
    finally:
        try:
            stop()
        except trio.RunFinishedError:
            pass  # a bug ended it, which is raised below
        thread.join()
    if failed:
        raise failed[0]
