"""Methods of the native service for readers that get entries from bookies: `plan` and `read_holds`."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.native.arguments import checked, plan_args
from gnomon.broker.native.read_planner import ReadPlanner, WantedHold
from gnomon.broker.native.translated import in_translated_task
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks


class PlanMethods:
    """The methods about read plans and read holds."""

    def __init__(self, access: NativeAccess, planner: ReadPlanner, tasks: Tasks) -> None:
        self._access = access
        self._planner = planner
        self._tasks = tasks

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "plan": in_translated_task(self._tasks, self._plan),
            "read_holds": in_translated_task(self._tasks, self._holds),
        }

    async def _plan(self, call: Call) -> object:
        """The plan of ranges of partitions that this broker leads, after the hold was taken."""
        name, ranges, hold, seconds = plan_args(call.args)
        self._access.question(NativeMethod.PLAN, call.peer).check(Operation.READ, topic(name))
        return await self._planner.plan(name, ranges, WantedHold(hold, seconds) if hold else None)

    async def _holds(self, call: Call) -> object:
        """Partition, number of holds and lowest held offset, of each partition of a topic that has read holds."""
        (name,) = checked(call.args, str)
        self._access.question(NativeMethod.READ_HOLDS, call.peer).check(Operation.DESCRIBE, topic(name))
        return await self._planner.holds(name)
