"""Methods of the native service about topics: `lookup`, `topic` and `replication`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.native.arguments import checked
from gnomon.broker.native.translated import in_translated_task
from gnomon.broker.placement.placement import Placement
from gnomon.broker.replication.shadow_replication import ShadowReplication
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NoSuchTopic
from gnomon.log.topic import Topic
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks


class TopicMethods:
    """The methods of the native service about topics and their leaders."""

    def __init__(
        self,
        access: NativeAccess,
        topics: Topics,
        records: TopicRecords,
        placement: Placement,
        partitions: PartitionsInUse,
        replication: ShadowReplication,
        tasks: Tasks,
    ) -> None:
        self._access = access
        self._topics = topics
        self._records = records
        self._placement = placement
        self._partitions = partitions
        self._replication = replication
        self._tasks = tasks

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "lookup": in_translated_task(self._tasks, self._lookup),
            "topic": self._topic,
            "replication": self._stats,
        }

    async def _lookup(self, call: Call) -> object:
        """The id of a topic, and the native address of each partition's leader."""
        (name,) = checked(call.args, str)
        self._access.question(NativeMethod.LOOKUP, call.peer).check(Operation.DESCRIBE, topic(name))
        await self._records.find(name)
        found = self._topics.find(name)
        leaders = []
        for number in self._placement.leaders(found, found.partitions):
            leader = self._placement.broker(number)
            leaders.append(None if leader is None else list(leader.native))
        return [found.id.hex, leaders]

    def _topic(self, call: Call) -> None:
        """The source of a shadow; and number, start and end of each partition that is open here."""
        found = self._described(call, NativeMethod.TOPIC)
        source = None if found.source is None else found.source.name
        call.reply([source, self._partitions.bounds(found)])

    def _stats(self, call: Call) -> None:
        """The statistics of all shadows and partitions of a source that this broker replicates."""
        source = self._described(call, NativeMethod.REPLICATION)
        rows = []
        for shadow in self._topics.image.shadows_of(source):
            for index in range(shadow.partitions):
                stats = self._replication.stats(shadow, index)
                if stats is not None:
                    rows.append({"shadow": shadow.name, "partition": index, **asdict(stats)})
        call.reply(rows)

    def _described(self, call: Call, method: NativeMethod) -> Topic:
        """The topic that a call may describe."""
        (name,) = checked(call.args, str)
        self._access.question(method, call.peer).check(Operation.DESCRIBE, topic(name))
        found = self._topics.image.get(name)
        if found is None:
            raise NoSuchTopic(f"topic '{name}' does not exist")
        return found
