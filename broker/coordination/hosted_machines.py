"""The state machines of one kind on one broker: passes each request to the machine of the request's partition.

1. A machine is loaded when its first request arrives. If `loads_unasked` is set, the machines of all partitions that
   this broker leads, and that were ever written to, are also loaded at the start and at each change of leaders.
2. A broker takes requests for a machine only while it leads the machine's partition and its lease certainly lives.
3. Machines of partitions that other brokers lead are released when the leaders change. So are those of a deleted topic,
   if the tenant calls `leaders_changed` then: nobody leads its partitions.
4. All tasks end when `run` ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

import trio

from gnomon.broker.coordination.hosted_machine import LOAD_AGAIN_SECONDS, HostedMachine, Refuse
from gnomon.broker.coordination.state_log import LogUnavailable, StateLogs
from gnomon.broker.coordination.state_machine import Effect, Record, Refusal, Request, StateMachine
from gnomon.runtime.logs import Logger
from gnomon.runtime.signal import Signal
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock


class HostedMachines(Generic[Request, Record, Effect]):
    """See the module.

    Args:
        logs: the logs of the machines, by partition.
        new_machine: makes an empty machine.
        execute: carries out an effect of a machine; must not raise, and does not wait.
        leads: whether this broker leads a partition, as far as it knows.
        lease_lives: whether this broker's lease certainly lives: no other broker can consider it dead.
        clock: of the world.
        timers: of the node, running.
        logger: of the tenant.
        loads_unasked: see invariant 1.
    """

    def __init__(
        self,
        logs: StateLogs,
        new_machine: Callable[[], StateMachine[Request, Record, Effect]],
        execute: Callable[[Effect], None],
        leads: Callable[[int], bool],
        lease_lives: Callable[[], bool],
        clock: Clock,
        timers: Timers,
        logger: Logger,
        *,
        loads_unasked: bool = False,
    ) -> None:
        self._logs = logs
        self._new_machine = new_machine
        self._execute = execute
        self._leads = leads
        self._lease_lives = lease_lives
        self._clock = clock
        self._timers = timers
        self._logger = logger
        self._loads_unasked = loads_unasked
        self._hosted: dict[int, HostedMachine[Request, Record, Effect]] = {}
        self._leaders_changed = Signal()
        self._tasks = OwnTasks()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until it is cancelled; start it (`nursery.start`) before the first request."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            task_status.started()
            if self._loads_unasked:
                await self._load_led_partitions()

    def serves(self, partition: int) -> bool:
        """Whether requests for a partition are served here (invariant 2)."""
        return self._leads(partition) and self._lease_lives()

    def submit(self, partition: int, request: Request, refuse: Refuse) -> None:
        """Has the partition's machine handle a request; see `HostedMachine.submit`."""
        if self.serves(partition):
            self._host(partition).submit(request, refuse)
        else:
            refuse(Refusal.NOT_LEADER)

    def submit_confirmed(self, partition: int, request: Request, refuse: Refuse) -> None:
        """`submit` for a request whose reply must not be older than the log; see `HostedMachine.submit_confirmed`."""
        if self.serves(partition):
            self._host(partition).submit_confirmed(request, refuse)
        else:
            refuse(Refusal.NOT_LEADER)

    async def used(self) -> list[int]:
        """The partitions that were ever written to, under any leader, and those in use here.

        Raises:
            LogUnavailable: the partitions cannot be determined now.
        """
        return sorted({*await self._logs.used(), *self._hosted})

    def loaded(self) -> list[StateMachine[Request, Record, Effect]]:
        """The machines that are loaded."""
        return [hosted.machine for hosted in self._hosted.values() if hosted.machine is not None]

    def drain(self) -> None:
        """The broker is about to stop and takes no more requests; see `HostedMachine.drain`."""
        for hosted in list(self._hosted.values()):
            hosted.drain()

    def leaders_changed(self) -> None:
        """Releases the machines of partitions that other brokers lead now (invariants 1 and 3)."""
        for partition in [partition for partition in self._hosted if not self._leads(partition)]:
            self._hosted.pop(partition).release()
        self._leaders_changed.set()

    def _host(self, partition: int) -> HostedMachine[Request, Record, Effect]:
        hosted = self._hosted.get(partition)
        if hosted is None:
            hosted = self._hosted[partition] = HostedMachine(
                partition,
                self._logs,
                self._new_machine,
                self._execute,
                self._clock,
                self._timers,
                self._tasks,
                self._logger,
            )
        return hosted

    async def _load_led_partitions(self) -> None:
        while True:
            self._leaders_changed.clear()
            try:
                written = await self._logs.used()
            except LogUnavailable as error:
                self._logger.warning("machines_not_found", reason=str(error), next="it is tried again")
                await self._clock.sleep(LOAD_AGAIN_SECONDS)
                continue
            for partition in written:
                if self._leads(partition):
                    self._host(partition).load()
            await self._leaders_changed.wait()
