"""A reader with one long-lived connection: fetch sessions over several partitions, small limits, searches by time.

    reader = RichReader(cluster, stream, several=False)
    nursery.start_soon(reader.run)
    reader.follow("orders", {0: truth})      # the partitions of the topic's next life, from their start

1. A session of a connection lasts as long as the connection. It names only partitions that it follows.
2. The first partition with records gives one batch at least. Everything else is within the limits.
3. In a session of one broker every partition with records has its turn: at most as many responses leave it out as the
   session has partitions, and TURNS_LEFT_OUT_MAX more.
4. A poll below the log's start is out of range, at once after a DeleteRecords on the same connection.
5. No poll shows a record of an earlier life of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.log_clients import EARLIEST, LATEST, RETRY_SECONDS, ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import DELETE_RECORDS_VERSION, ask_until, expect
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.testing.storms.logs.log_truth import MAX_TIMESTAMP, LogTruth, ReadRecord, TimeSearch
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from gnomon.wire.kafka.records import iterate_records

if TYPE_CHECKING:
    from random import Random

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
"""The first version that finds the largest timestamp."""
LIMITS = (1, 300, 2000, 1 << 20)
BATCH_BYTES_MAX = 64 << 20
WAIT_MS = 200
NEW_SESSION_RATE, FORGET_RATE, DELETE_RATE, SEARCH_RATE = 0.03, 0.03, 0.05, 0.1
TURNS_LEFT_OUT_MAX = 2
"""A partition with records is left out of as many responses as there are other partitions, and this many more."""


@dataclass(slots=True)
class ReadPartition:
    """One partition as the reader knows it."""

    truth: LogTruth
    name: str
    position: int = 0
    high_watermark: int = 0
    bytes_max: int = 1 << 20
    left_out: int = 0
    """The responses with records of others since its last turn, while it had records too."""
    named: bool = False
    """Whether the session has the present position."""
    jumps: int = 0
    told: tuple[int, int] | None = None
    """High watermark and log start, as the session sent them last."""
    below: int | None = None
    """The log's start, while a poll below it is to be answered."""

    @property
    def poll_name(self) -> str:
        """The name of the reader since its last jump."""
        return f"{self.name}/{self.jumps}"

    def jump(self, position: int) -> None:
        """Reads on from another position."""
        self.position, self.named = position, False
        self.jumps += 1


@dataclass(slots=True)
class ReaderSession:
    """A fetch session of one connection; id 0 before the first answer."""

    id: int = 0
    epoch: int = 0
    followed: set[int] = field(default_factory=set)


class RichReader:
    """Reads the lives of a topic, one after the other.

    Args:
        several: whether there may be several brokers: partitions led elsewhere are left out, and records are not
            always in a broker's memory.
    """

    def __init__(self, cluster: WireCluster, stream: Random, *, several: bool) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._logger = cluster.world.logger
        self._stream = stream
        self._several = several
        self._topic = ""
        self._left: list[tuple[str, list[int]]] = []
        """Topics of earlier lives, and the partitions that the session still follows."""
        self._partitions: dict[int, ReadPartition] = {}
        self._session = ReaderSession()
        self._changed = trio.Event()
        self._idle = trio.Event()
        self._lives = 0

    def follow(self, topic: str, truths: Mapping[int, LogTruth]) -> None:
        """Reads the partitions of a topic that was created."""
        self._lives += 1
        self._topic = topic
        self._partitions = {number: ReadPartition(truth, f"reader-{self._lives}") for number, truth in truths.items()}
        self._changed.set()

    async def leave(self) -> None:
        """Reads no more; returns once no request is under way. The session continues to follow the topic."""
        if not self._partitions:
            return
        self._left.append((self._topic, sorted(self._session.followed)))
        self._session.followed = set()
        self._partitions, self._changed, self._idle = {}, trio.Event(), trio.Event()
        await self._idle.wait()

    async def run(self) -> None:
        """Reads until it is cancelled.

        Raises:
            ProduceRefused: a rule does not hold.
        """
        while True:
            connection: WireConnection | None = None
            try:
                if not self._partitions:
                    self._idle.set()
                    await self._changed.wait()
                connection = await self._cluster.leader(self._topic, 0)
                self._session = ReaderSession()
                self._left.clear()
                await self._read(connection)
            except Unreachable:
                await self._clock.sleep(RETRY_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    async def _read(self, connection: WireConnection) -> None:
        while True:
            if not self._partitions:
                self._idle.set()
                await self._changed.wait()
            here = self._partitions
            await self._poll(connection, here)
            number = self._stream.choice(list(here))
            if self._stream.random() < SEARCH_RATE:
                await self._search(connection, number, here[number])
            if self._stream.random() < DELETE_RATE:
                await self._delete(connection, number, here[number])

    # Fetches

    async def _poll(self, connection: WireConnection, here: dict[int, ReadPartition]) -> None:
        session, topic = self._session, self._topic
        if session.id == 0 or self._stream.random() < NEW_SESSION_RATE:
            session.epoch, session.followed = 0, set()
            for each in here.values():
                each.named, each.bytes_max, each.left_out = False, self._stream.choice(LIMITS), 0
            self._left.clear()
        bytes_max = self._stream.choice(LIMITS)
        request = self._request(topic, here, bytes_max)
        response = await connection.request(request, FETCH_VERSION, FetchResponse)
        if response.error_code:
            error = ErrorCode(response.error_code)
            if error in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                raise ProduceRefused(f"a session of {session.epoch} polls on one connection ended: {error.name}")
            expect(error, "fetch")
        if session.epoch == 0 and response.session_id == 0:
            raise ProduceRefused("a broker with few readers began no session")
        session.id, session.epoch = response.session_id, session.epoch + 1
        if self._partitions is not here:
            return  # the topic was left meanwhile
        found = [
            (part.partition_index, part)
            for each in response.responses
            if each.topic == topic
            for part in each.partitions
        ]
        self._check_named(found, here)
        self._check_limits(found, here, bytes_max)
        for number, part in found:
            await self._take(connection, number, here[number], part)
        self._check_turns([number for number, part in found if part.records], here)

    def _request(self, topic: str, here: dict[int, ReadPartition], bytes_max: int) -> FetchRequest:
        session = self._session
        forgotten = [ForgottenTopic(topic=name, partitions=numbers) for name, numbers in self._left if numbers]
        self._left.clear()
        if session.epoch and len(session.followed) > 1 and self._stream.random() < FORGET_RATE:
            number = self._stream.choice(sorted(session.followed))
            session.followed.discard(number)
            here[number].named, here[number].left_out = False, 0
            forgotten.append(ForgottenTopic(topic=topic, partitions=[number]))
            self._logger.debug("partition_forgotten", partition=number)
        else:
            number = -1
        named = []
        for index, each in here.items():
            if index != number and (not each.named or index not in session.followed):
                if index not in session.followed:
                    each.told = None
                each.named = True
                session.followed.add(index)
                named.append(
                    FetchPartition(partition=index, fetch_offset=each.position, partition_max_bytes=each.bytes_max)
                )
        self._stream.shuffle(named)
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            session_id=session.id if session.epoch else 0,
            session_epoch=session.epoch,
            topics=[FetchTopic(topic=topic, partitions=named)] if named else [],
            forgotten_topics_data=forgotten,
        )

    def _check_named(self, found: list[tuple[int, PartitionData]], here: dict[int, ReadPartition]) -> None:
        strange = [number for number, _ in found if number not in here or number not in self._session.followed]
        if strange or len(dict(found)) < len(found):
            raise ProduceRefused(f"a response names partitions {[number for number, _ in found]}, of {list(here)}")
        for number, part in found:
            each, told = here[number], (part.high_watermark, part.log_start_offset)
            if self._session.epoch > 1 and each.told == told and not part.records and not part.error_code:
                raise ProduceRefused(f"a response names partition {number} without news: {told}")
            each.told = told

    def _check_limits(
        self, found: list[tuple[int, PartitionData]], here: dict[int, ReadPartition], bytes_max: int
    ) -> None:
        total = 0
        for number, part in found:
            records = memoryview(part.records or b"")
            if not len(records):
                continue
            limit = min(here[number].bytes_max, bytes_max - total)
            if len(records) > limit and (total or parse_batch(records).size_bytes < len(records)):
                raise ProduceRefused(f"partition {number} gave {len(records)} bytes, the limit is {limit}")
            if len(records) > limit:
                self._logger.debug("first_batch_beyond_the_limits")
            total += len(records)

    def _check_turns(self, served: list[int], here: dict[int, ReadPartition]) -> None:
        if self._several or not served:
            return
        for number, each in here.items():
            has_records = each.named and each.position < each.high_watermark and number in self._session.followed
            each.left_out = each.left_out + 1 if has_records and number not in served else 0
            if each.left_out > len(here) + TURNS_LEFT_OUT_MAX:
                raise ProduceRefused(
                    f"partition {number} was left out of {each.left_out} responses, with records from {each.position} "
                    f"to {each.high_watermark}"
                )
            if each.left_out:
                self._logger.debug("partition_waits_for_its_turn")

    async def _take(self, connection: WireConnection, number: int, each: ReadPartition, part: PartitionData) -> None:
        error = ErrorCode(part.error_code)
        below, each.below = each.below, None
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self._offset(connection, number, EARLIEST)
            if each.position >= start:
                raise ProduceRefused(f"partition {number}: {each.position} is out of range, the log starts at {start}")
            self._logger.debug("poll_below_the_start", asked_for=below is not None)
            each.jump(start)
            return
        if error is not ErrorCode.NONE:
            each.named = False
            if number and self._several:
                return  # another broker leads it
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise Unreachable("the broker does not know the topic yet")
            expect(error, f"fetch from {each.position}")
        if below is not None:
            raise ProduceRefused(f"partition {number}: a poll at {each.position} succeeded, the log starts at {below}")
        each.high_watermark = part.high_watermark
        records = read_records(memoryview(part.records or b""), each.position)
        if records:
            each.truth.read(each.poll_name, records)
            each.position, each.named = records[-1].offset + 1, False

    # Other requests on the same connection

    async def _offset(self, connection: WireConnection, number: int, timestamp: int) -> int:
        return (await self._listed(connection, number, timestamp))[0]

    async def _listed(self, connection: WireConnection, number: int, timestamp: int) -> tuple[int, int]:
        asked = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])])
        answer = await connection.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Unreachable("the broker does not know the topic yet")
        expect(found.error_code, f"search for {timestamp}")
        return found.offset, found.timestamp

    async def _search(self, connection: WireConnection, number: int, each: ReadPartition) -> None:
        truth = each.truth
        wanted = MAX_TIMESTAMP
        if self._stream.random() < 0.8:
            wanted = max(0, truth.a_time(self._stream) + self._stream.choice([-1, 0, 1]))
        try:
            start, end = await self._offset(connection, number, EARLIEST), truth.end
            offset, timestamp = await self._listed(connection, number, wanted)
            after = await self._offset(connection, number, EARLIEST)
        except Unreachable:
            if number and self._several:
                return  # another broker leads it
            raise
        truth.searched(TimeSearch(wanted, offset, timestamp, start, after, end))
        self._logger.debug("searched_by_time", found=offset >= 0, largest=wanted == MAX_TIMESTAMP)

    async def _delete(self, connection: WireConnection, number: int, each: ReadPartition) -> None:
        """Deletes records, and polls below the new start."""
        if self._session.id == 0 or number not in self._session.followed:
            return
        history = each.truth.history
        try:
            start, end = (
                await self._offset(connection, number, EARLIEST),
                await self._offset(connection, number, LATEST),
            )
            before = round(start + (end - start) * self._stream.random())
            history.log_start_offset = max(history.log_start_offset, before)
            part = DeleteRecordsPartition(partition_index=number, offset=before)
            asked = DeleteRecordsTopic(name=self._topic, partitions=[part])
            request = DeleteRecordsRequest(topics=[asked], timeout_ms=5000)
            answer = await connection.request(request, DELETE_RECORDS_VERSION, DeleteRecordsResponse)
            found = answer.topics[0].partitions[0]
            expect(found.error_code, f"deletion of records below {before}")
        except Unreachable:
            if number and self._several:
                return  # another broker leads it
            raise
        if found.low_watermark < before:
            raise ProduceRefused(f"after a deletion of records below {before} the log starts at {found.low_watermark}")
        if found.low_watermark > 0:
            each.jump(self._stream.randrange(found.low_watermark))
            each.below = found.low_watermark


def read_records(view: memoryview, position: int) -> list[ReadRecord]:
    """The records of whole batches from a position on."""
    records = []
    at = 0
    while at < len(view):
        header = parse_batch(view, at)
        for record in iterate_records(view[at : at + header.size_bytes], BATCH_BYTES_MAX):
            offset = header.base_offset + record.offset_delta
            time = header.base_timestamp + record.timestamp_delta
            if offset >= position:
                time = header.max_timestamp if header.is_log_append_time else time
                records.append(ReadRecord(offset, record.value or b"", time, header.compression))
        at += header.size_bytes
    return records


async def read_whole(cluster: WireCluster, topic: str, number: int) -> tuple[list[ReadRecord], int]:
    """All records from the log's start to its present end, and the start; retried until it succeeds."""

    async def read(connection: WireConnection) -> tuple[list[ReadRecord], int]:
        async def place(timestamp: int) -> int:
            asked = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
            answer = await connection.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
            found = answer.topics[0].partitions[0]
            expect(found.error_code, f"{topic}-{number} was asked for offset {timestamp}")
            return found.offset

        start, end = await place(EARLIEST), await place(LATEST)
        records: list[ReadRecord] = []
        position = start
        while position < end:
            part = FetchPartition(partition=number, fetch_offset=position, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic=topic, partitions=[part])]
            request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1 << 22, topics=topics)
            response = await connection.request(request, FETCH_VERSION, FetchResponse)
            expect(response.error_code, "final fetch")
            found = response.responses[0].partitions[0]
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Unreachable("retention has deleted records meanwhile")
            expect(found.error_code, f"final fetch from {position}")
            records += read_records(memoryview(found.records or b""), position)
            position = records[-1].offset + 1 if records else position
        return records, start

    return (await ask_until(cluster, read, partial(cluster.leader, topic, number)))[0]
