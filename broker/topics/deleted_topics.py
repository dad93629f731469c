"""The remains of deleted topics: their committed offsets, which must be deleted before a name is free again.

The committed offsets of a deleted topic would be wrong for the next topic of that name. A broker that does not know of
the deletion yet would serve the deleted topic to a client that asks for the name. So the transaction of the deletion
also writes a key. The key is deleted once the offsets are deleted and every live broker knows of the deletion. A
creation of a topic of that name waits until then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgpack
import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.placement.brokers import BROKERS, registered_id
from gnomon.broker.placement.placement import Placement
from gnomon.broker.storage import Storage
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import DELETED_PREFIX, Topic, deleted_key
from gnomon.metadata.client import Compare, Delete, KeyField, MetadataError, Operation, Put
from gnomon.runtime.logs import Logger
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.errors import ErrorCode

FORGET_SECONDS_MAX = 10.0
FORGET_LOOK_SECONDS = 0.1
"""A creation checks this often, for FORGET_SECONDS_MAX at most, whether all brokers have forgotten a deleted topic."""
FORGET_RETRY_SECONDS = 1.0

DeleteOffsets: TypeAlias = Callable[[Sequence[str]], Awaitable[tuple[list[int], list[int]]]]
"""Deletes the offsets of topics from the groups of this broker: see `GroupCoordinator.delete_topic_offsets`."""


class DeletedTopics:
    """Finishes deletions on one broker; `run` does so after each deletion and change of leaders."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        records: TopicRecords,
        storage: Storage,
        delete_offsets: DeleteOffsets,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._records = records
        self._storage = storage
        self._delete_offsets = delete_offsets
        self._clock = clock
        self._log = log
        self._forgetting = trio.Lock()
        self._tasks = OwnTasks()
        topics.watch(ended=self._topic_ended)
        placement.watch(self._leaders_changed)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Finishes the deletions that the last run left unfinished, and all later ones, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            self._tasks.start_soon(self.finish_all)
            task_status.started()

    def _topic_ended(self, topic: Topic, shadows: Sequence[Topic]) -> None:
        self._tasks.start_soon(self._finish, topic.name)

    def _leaders_changed(self) -> None:
        if self._placement.registered:  # before, no deletion waits for this broker
            self._tasks.start_soon(self.finish_all)

    async def wait_for_name(self, name: str) -> None:
        """Deletes this broker's remains of deleted topics of this name, and waits until the other brokers have done so.

        Raises:
            KafkaError: other brokers did not finish in time, or offsets cannot be deleted now.
        """
        clock = self._clock
        give_up_at = clock.monotonic() + FORGET_SECONDS_MAX
        await self._forget_offsets(name)
        while await self._storage.metadata.get(deleted_key(name)) is not None:
            if clock.monotonic() >= give_up_at:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"Topic '{name}' is still being deleted by other brokers: try again."
                )
            await clock.sleep(FORGET_LOOK_SECONDS)
            await self._forget_offsets(name)

    async def _forget_offsets(self, name: str) -> None:
        """Deletes the committed offsets of a deleted topic from this broker's groups, unless that was done.

        The value of the topic's `deleted_key` names the finished partitions of the offsets topic and, as ~id, the
        brokers that know of the deletion. The broker that finds nothing missing deletes the key.

        Raises:
            KafkaError: the offsets cannot be deleted now.
        """
        key = deleted_key(name)
        async with self._forgetting:  # a concurrent run could delete offsets of the next life
            found = await self._storage.metadata.get(key)
            if found is None:
                return
            deleted_at = found.create_revision
            await self._topics.reached(deleted_at)  # from then on this broker refuses such commits
            seen_to, others = await self._delete_offsets([name])
            while found is not None and found.create_revision == deleted_at:
                before = {*(msgpack.unpackb(found.value) if found.value else ())}
                done = {*before, *seen_to, ~self._placement.node_id}
                left = not done.issuperset(others) or not done.issuperset(await self._live_brokers())
                if left and done == before:
                    return
                then: Operation = Put(key, msgpack.packb(sorted(done))) if left else Delete(key)
                if (
                    await self._records.write([Compare(key, KeyField.MOD_REVISION, found.mod_revision)], [then])
                ).succeeded:
                    return
                found = await self._storage.metadata.get(key)

    async def _live_brokers(self) -> list[int]:
        """The registered brokers, which clients may ask, as ~id like in a deleted topic's key."""
        registered = await self._storage.metadata.range(BROKERS)
        return [~registered_id(item.key) for item in registered.items]

    async def _finish(self, name: str) -> None:
        """Deletes a deleted topic's offsets, and retries until that succeeds: the name is not free before."""
        while not await self._forgotten(name):
            await self._clock.sleep(FORGET_RETRY_SECONDS)

    async def _forgotten(self, name: str) -> bool:
        try:
            await self._forget_offsets(name)
        except (KafkaError, MetadataError, WorldError) as error:
            self._log.warning("offsets_not_deleted", topic=name, reason=str(error), next="it is tried again")
            return False
        return True

    async def finish_all(self) -> None:
        """Finishes the deletions that the last run, or the last attempt, left unfinished."""
        try:
            found = await self._storage.metadata.range(DELETED_PREFIX)
        except MetadataError as error:
            self._log.warning("deletions_not_finished", reason=str(error), next="before each is created again")
            return
        for item in found.items:
            await self._forgotten(item.key.removeprefix(DELETED_PREFIX))
