"""Trio in a thread of its own, for programs without it: what is open there is used from any other thread."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

import trio

T = TypeVar("T")
P = ParamSpec("P")


class TrioThread:
    """Calls from any thread into the one that runs Trio."""

    def __init__(self, token: trio.lowlevel.TrioToken, ended: Callable[[], Exception]) -> None:
        """Calls through `token`; `ended` makes the error of those that come too late."""
        self._token = token
        self._ended = ended

    def call(self, work: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        """What `work` gives there; raises what `ended` makes once the block is over."""

        async def run() -> T:
            return await work(*args, **options)

        try:
            return trio.from_thread.run(run, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise self._ended() from None

    def soon(self, work: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
        """Has `work`, which must not raise, run there after what was asked before; raises as `call`."""
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
        raise _only(first)
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


def _only(error: BaseException) -> BaseException:
    """The one error in groups of one, as Trio makes them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
