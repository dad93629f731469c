"""A simulation that synchronous code drives step by step, such as the rules of a Hypothesis state machine.

class Counting(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.guided = GuidedSimulation(seed)
        self.guided.machine("server").start(node)         # async def node(world): ...

    @rule()
    def ask(self):
        assert self.guided.run(ask_the_server) == 42      # async def ask_the_server(): ...

    @rule(seconds=st.floats(0, 10))
    def let_time_pass(self, seconds):
        self.guided.sleep(seconds)

    def teardown(self):
        self.guided.close()

It is the simulation of `simulate`, in Trio's guest mode: Trio's loop is a queue of ticks. A step (`run`, `sleep` or
`settle`) runs ticks until its result is there. Between two steps no task runs and no time passes; the caller may then
kill machines, cut links or start tasks, as a scenario does. The same steps under the same seed give the same trace.

1. No thread is used: guest mode waits for I/O in a thread only if a tick asks for a wait longer than 0 s. No tick does,
   because the clock jumps as soon as every task waits. So each tick queues the next one; otherwise the simulation
   fails.
2. Time passes only during a step, at most up to the deadline that wakes the step's own task. Each step makes a task
   runnable, which cancels a jump of the clock that was due when the previous step ended.
3. An interrupt (SIGINT) ends the simulation at a checkpoint (`restrict_keyboard_interrupt_to_checkpoints`): between two
   ticks it could lose the second tick.
4. The seed must be drawn, as above. Hypothesis gives Trio's scheduler the same random numbers in every example, so only
   the seed makes the examples differ in the order of their tasks.
5. A thread runs one such simulation at a time, and no `trio.run` until the simulation is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio
import trio.testing

from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.simulation import Simulation, autojumping_clock, prepared

if TYPE_CHECKING:
    from outcome import Outcome

T = TypeVar("T")

STEP_SECONDS_MAX = 600.0


class GuidedOperation(Generic[T]):
    """Work in progress; made by `GuidedSimulation.begin`."""

    def __init__(self) -> None:
        self.result: T | None = None
        self.error: Exception | None = None
        self.done = False
        """Whether it has ended with `result` or `error`."""

    async def run(self, work: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        """Does the work."""
        try:
            self.result = await work(*args)
        except Exception as error:
            self.error = error
        self.done = True

    def outcome(self) -> T:
        """The result of the work; raises its error."""
        assert self.done, "the operation is under way"
        if self.error is not None:
            raise self.error
        return cast(T, self.result)


class GuidedSimulation:
    """A simulation that runs from its creation to `close`; as a context manager it closes itself.

    Args:
        seed: determines everything random.
        node_packages: packages whose code must not bypass its world.
        on_line: called with each line of the trace, while it runs.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        node_packages: tuple[str, ...] = ("gnomon",),
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._ticks: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._ended: Outcome[list[None]] | None = None
        self._running = False
        self._interrupt: KeyboardInterrupt | None = None
        self._closing = trio.Event()
        self._stack = ExitStack()
        clock = autojumping_clock()
        self.simulation: Simulation = self._stack.enter_context(prepared(seed, node_packages, on_line))
        try:
            trio.lowlevel.start_guest_run(
                self.simulation.run,
                self._until_closed,
                float("inf"),
                run_sync_soon_threadsafe=self._ticks.put,
                done_callback=self._end,
                clock=clock,
                restrict_keyboard_interrupt_to_checkpoints=True,
            )
            while not self._running:
                self._tick()
        except BaseException:
            self._stack.close()
            raise

    def machine(self, name: str) -> Machine:
        """See `Simulation.machine`."""
        return self.simulation.machine(name)

    def begin(self, work: Callable[..., Awaitable[T]], *args: Any) -> GuidedOperation[T]:
        """Starts a task; it begins with the next step, and continues with each step until it is done."""
        operation: GuidedOperation[T] = GuidedOperation()
        self.start_soon(operation.run, work, args)
        return operation

    def start_soon(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """As `begin`, but an error of the task ends the simulation."""
        self._check()
        self.simulation.start_soon(work, *args)

    def run(self, work: Callable[..., Awaitable[T]], *args: Any, seconds_max: float = STEP_SECONDS_MAX) -> T:
        """A step: runs the work and returns its result, or raises its error.

        Args:
            seconds_max: virtual seconds after which it has failed.

        Raises:
            SimulationFailed: a node or another task failed meanwhile; the simulation is over then.
            trio.TooSlowError: the time was over; the work is cancelled.
        """

        async def bounded() -> T:
            with trio.fail_after(seconds_max):
                return await work(*args)

        operation = self.begin(bounded)
        self._pump(lambda: operation.done)
        if isinstance(operation.error, trio.TooSlowError):
            operation.error.add_note(self.simulation.story())
        return operation.outcome()

    def sleep(self, seconds: float) -> None:
        """A step: lets virtual time pass."""
        self.run(self.simulation.sleep, seconds, seconds_max=float("inf"))

    def settle(self) -> None:
        """A step: every task runs until it waits; no time passes."""
        self.run(trio.testing.wait_all_tasks_blocked)

    def close(self) -> None:
        """Kills all processes, and ends the simulation; idempotent. Its trace and coverage stay.

        Raises:
            SimulationFailed: a node or task failed, and no step has reported it.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        try:
            while self._ended is None:
                self._tick()
            self._ended.unwrap()
        finally:
            self._stack.close()
        if self._interrupt is not None:
            raise self._interrupt
        self.simulation.raise_failure()

    def __enter__(self) -> GuidedSimulation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SimulationFailed:
            if error is None:
                raise

    async def _until_closed(self, simulation: Simulation) -> None:
        self._running = True
        try:
            await self._closing.wait()
        except KeyboardInterrupt as interrupt:
            self._interrupt = interrupt

    def _end(self, ended: Outcome[list[None]]) -> None:
        self._ended = ended

    def _pump(self, done: Callable[[], bool]) -> None:
        while not done():
            self._check()
            self._tick()
        self._check()

    def _tick(self) -> None:
        if self._ticks.empty():  # Trio waits in a thread
            self.simulation.fail("something waits for more than virtual time", TimeoutError("no tick was queued"))
        self._ticks.get()()

    def _check(self) -> None:
        assert not self._closing.is_set(), "the simulation is closed"
        if self._ended is not None or self.simulation.failure is not None:
            self.close()
            raise AssertionError("the simulation is over")
