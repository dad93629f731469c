"""The copies that exist of each partition's records, for answers to clients that describe topics.

1. While every bookie of the cluster is alive, and no report says that copies are missing, nothing is read: all copies
   exist.
2. While a bookie is absent, the records of the ledgers of the described topics are read, of each topic at most once in
   FRESH_SECONDS. An answer waits for them for at most WAIT_SECONDS, and not at all while the metadata service does not
   answer. Without them a partition has as many copies as were counted last; if they were never counted, only the ack
   quorum is known to exist.
3. A partition of which a ledger is reported to the auditor (`missing/`) lacks at least one copy until the report is
   settled.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

import trio

from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import MISSING
from gnomon.bookie.record import ledger_key
from gnomon.broker.storage import Storage
from gnomon.broker.topics.replicas import in_sync, missing_copies, replica_ids
from gnomon.log.chains import partition_of, records_of
from gnomon.log.topic import Topic
from gnomon.metadata.client import KeyValue, MetadataError, RangeResult, WatchBatch
from gnomon.metadata.follower import RETRY_SECONDS, Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import Clock

FRESH_SECONDS: Final = 2.0
WAIT_SECONDS: Final = 1.0
READ_SINGLY: Final = 20
"""The ledgers of up to this many topics are read topic by topic; for more topics, all ledgers are read at once."""


class Counted(NamedTuple):
    """The copies of a topic's partitions, as counted at one time."""

    at: float
    absent: Set[BookieId]
    """The bookies that were absent."""
    missing: Mapping[int, int]
    """The missing copies by number of the partition; partitions without any are left out."""


class DescribedReplicas:
    """The replicas of partitions in one answer."""

    def __init__(
        self,
        storage: Storage,
        brokers: Collection[int],
        counted: Mapping[uuid.UUID, Counted] | None = None,
        reported: Set[tuple[uuid.UUID, int]] = frozenset(),
    ) -> None:
        """The replicas in an answer that names these brokers.

        Args:
            counted: by the id of the topic that has the ledgers; None if no bookie is absent.
            reported: the partitions that lack at least one copy.
        """
        self._storage = storage
        self._brokers = brokers
        self._counted = counted
        self._reported = reported
        self._complete = counted is None and not reported
        self._full: dict[tuple[int, int | None], tuple[list[int], list[int]]] = {}
        """The replicas of a partition whose copies all exist, by its leader and the copies of its topic."""

    def of(self, topic: Topic, index: int, leader: int) -> tuple[list[int], list[int]]:
        """The ids of a partition's replicas, and of those in sync."""
        full = self._full.get((leader, topic.copies))
        if full is None:
            ids = replica_ids(leader, self._brokers, self._storage.quorum_of(topic.copies).write_quorum)
            full = self._full[leader, topic.copies] = (ids, ids)
        if self._complete:
            return full
        return full[0], in_sync(full[0], self._missing(topic, index))

    def _missing(self, topic: Topic, index: int) -> int:
        missing = 0
        if self._counted is not None:
            counted = self._counted.get(topic.ranked_as)
            quorum = self._storage.quorum_of(topic.copies)
            unknown = quorum.write_quorum - quorum.ack_quorum
            missing = unknown if counted is None else counted.missing.get(index, 0)
        return max(missing, 1) if (topic.ranked_as, index) in self._reported else missing


class Copies:
    """Counts copies for one broker; `run` must run before they are counted."""

    def __init__(self, storage: Storage, clock: Clock, log: Logger) -> None:
        self._storage = storage
        self._clock = clock
        self._tasks = OwnTasks()
        self._follower = Follower(storage.metadata, clock, log, MISSING, self._replace, self._apply)
        self._reported: dict[str, tuple[uuid.UUID, int]] = {}
        """The partitions of the ledgers that lack copies, by the key of the report."""
        self._counted: dict[uuid.UUID, Counted] = {}
        self._reads: dict[uuid.UUID, trio.Event] = {}
        """The reads under way, by topic; each is set when it ends."""
        self._one_read = trio.Lock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follows the reports of missing copies, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            task_status.started()
            while True:
                try:
                    await self._follower.load()
                    break
                except MetadataError:
                    await self._clock.sleep(RETRY_SECONDS)
            await self._follower.run()

    @property
    def reported(self) -> Set[tuple[uuid.UUID, int]]:
        """Topic id and number of the partitions that lack copies, by the reports to the auditor."""
        return frozenset(self._reported.values())

    async def described(self, topics: Iterable[Topic], brokers: Collection[int]) -> DescribedReplicas:
        """The replicas of these topics' partitions, in an answer that names these brokers."""
        absent, reported = self._storage.bookies.absent(), self.reported
        if not absent:
            self._counted.clear()
            return DescribedReplicas(self._storage, brokers, None, reported)
        await self._count({topic.ranked_as for topic in topics}, absent)
        return DescribedReplicas(self._storage, brokers, self._counted, reported)

    def forget(self, topic: Topic) -> None:
        """Forgets the copies of a deleted topic."""
        self._counted.pop(topic.id, None)

    # --- counting -----------------------------------------------------------------------------------------------

    async def _count(self, topics: Set[uuid.UUID], absent: Set[BookieId]) -> None:
        stale = [topic for topic in topics if not self._is_fresh(topic, absent)]
        if not stale or not self._follower.following:
            return
        unread = [topic for topic in stale if topic not in self._reads]
        if unread:
            self._reads.update(dict.fromkeys(unread, trio.Event()))
            self._tasks.start_soon(self._read, unread, absent)
        with trio.move_on_after(WAIT_SECONDS):
            for event in {self._reads[topic]: None for topic in stale if topic in self._reads}:
                await event.wait()

    def _is_fresh(self, topic: uuid.UUID, absent: Set[BookieId]) -> bool:
        counted = self._counted.get(topic)
        fresh_from = self._clock.monotonic() - FRESH_SECONDS
        return counted is not None and counted.at >= fresh_from and counted.absent == absent

    async def _read(self, topics: Sequence[uuid.UUID], absent: Set[BookieId]) -> None:
        """Counts the copies of topics, one read after the other."""
        event = self._reads[topics[0]]
        try:
            async with self._one_read:
                missing: dict[uuid.UUID, dict[int, int]] = {topic: {} for topic in topics}
                for one in topics if len(topics) <= READ_SINGLY else (None,):
                    async for (topic, index), record in records_of(self._storage.metadata, one, self._clock):
                        count = missing_copies(record, absent)
                        if count and topic in missing:
                            missing[topic][index] = max(count, missing[topic].get(index, 0))
                now = self._clock.monotonic()
                self._counted.update({topic: Counted(now, absent, found) for topic, found in missing.items()})
        except MetadataError:
            pass  # the next answer tries again, and this one gives the figures counted before
        finally:
            for topic in topics:
                del self._reads[topic]
            event.set()

    # --- following ----------------------------------------------------------------------------------------------

    def _replace(self, found: RangeResult) -> None:
        self._reported = {}
        for item in found.items:
            self._report(item)

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            self._reported.pop(event.key, None)
            if event.current is not None:
                self._report(event.current)

    def _report(self, item: KeyValue) -> None:
        partition = partition_of(ledger_key(item.value.decode()))
        if partition is not None:
            self._reported[item.key] = partition
