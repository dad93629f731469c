"""Methods of the native service about topics: `lookup`, `topic`, `subscribed_topics` and `replication`."""

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
from gnomon.broker.storage import Storage
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NoSuchTopic
from gnomon.log.subscription_keys import READERS
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock

TOPICS_MAX = 1000
"""Topics that one answer names."""
READERS_PER_TURN = 2000
"""Topics with subscriptions that are looked at in one turn: some 3 ms."""


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
        storage: Storage,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._access = access
        self._topics = topics
        self._records = records
        self._placement = placement
        self._partitions = partitions
        self._replication = replication
        self._storage = storage
        self._clock = clock
        self._tasks = tasks

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "lookup": in_translated_task(self._tasks, self._lookup),
            "topic": self._topic,
            "subscribed_topics": in_translated_task(self._tasks, self._subscribed),
            "replication": self._stats,
        }

    async def _lookup(self, call: Call) -> object:
        """The id of a topic, and the native address of each partition's leader; and the reason if it may be wrong."""
        (name,) = checked(call.args, str)
        self._access.question(NativeMethod.LOOKUP, call.peer).check(Operation.DESCRIBE, topic(name))
        await self._records.find(name)
        found = self._topics.find(name)
        leaders = []
        for number in self._placement.leaders(found, found.partitions):
            leader = self._placement.broker(number)
            leaders.append(None if leader is None else list(leader.native))
        problem = self._placement.lease_problem()
        return [found.id.hex, leaders] if problem is None else [found.id.hex, leaders, problem]

    def _topic(self, call: Call) -> None:
        """The source of a shadow; and number, start and end of each partition that is open here."""
        found = self._described(call, NativeMethod.TOPIC)
        source = None if found.source is None else found.source.name
        call.reply([source, self._partitions.bounds(found)])

    async def _subscribed(self, call: Call) -> list[str]:
        """At most TOPICS_MAX names of topics that have, or had, subscriptions, in order, after the given name."""
        (after,) = checked(call.args, str)
        question = self._access.question(NativeMethod.SUBSCRIBED_TOPICS, call.peer)
        found: list[str] = []
        readers = (await self._storage.metadata.range(READERS)).items
        async for item in paced(readers, READERS_PER_TURN, self._clock):
            name = item.value.decode()
            if name > after and question.allows(Operation.DESCRIBE, topic(name)):
                found.append(name)
                if len(found) == 2 * TOPICS_MAX:
                    found = sorted(found)[:TOPICS_MAX]
        return sorted(found)[:TOPICS_MAX]

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
