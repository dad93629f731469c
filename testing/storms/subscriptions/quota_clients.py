"""Storm clients that write to a topic with a backlog quota, or with a retention of seconds, and read it.

    scenario = LogScenario(..., beside={"refusing": partial(keep_within_quota, policy="refuse-produce")})

`quota_truth` has the rules; these are added:

1. Producers are accepted soon after all records are acknowledged.
2. Retention keeps the records that it has to hold, and deletes old records once all subscriptions have read them.
"""

from __future__ import annotations

import re
from random import Random
from typing import Literal

import trio

from gnomon.client.client import NativeClient, connect
from gnomon.client.errors import ConsumerClosed, RecordsMissed
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import EARLIEST, LATEST, PRODUCE_VERSION, ProduceRefused, SimulatedConsumer
from gnomon.testing.storms.kafka.storm_clients import ask_until, create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.testing.storms.subscriptions.quota_truth import STORED_SECONDS, QuotaTruth
from gnomon.testing.storms.subscriptions.seek_clients import AWAY
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.records import Record, build_batch

Policy = Literal["refuse-produce", "drop-oldest", "retention"]
POLICIES: tuple[Policy, ...] = ("refuse-produce", "drop-oldest", "retention")
RECORD_BYTES = 1080
"""The size of a batch of one record, at most."""
COUNTED_BYTES = 1400
"""The bytes that a broker counts for a batch, at most: with the entry's header and a share of the snapshots."""
QUOTA_RECORDS = 12
WITHIN_QUOTA = QUOTA_RECORDS * RECORD_BYTES // COUNTED_BYTES
RECORDS_A_SECOND = 1.5
RETENTION_SECONDS = 2
LOOK_SECONDS = 2.0
"""The interval at which brokers measure backlogs in these scenarios."""
MEASURED_SECONDS = LOOK_SECONDS + 2.0
"""The highest age of a broker's measurement while no fault delays it."""
SETTLE_SECONDS = 25.0
"""Time after a storm in which leases end, partitions are claimed and bookies come back."""
CALM_SECONDS = 60.0
WATCH_SECONDS = 0.5
READ_SECONDS_MEAN, READ_SECONDS_MAX = 12.0, 40.0
"""The seconds that a reader lives; it looks only between two lives whether it has all records."""
IDLE_SECONDS_MEAN = 6.0
SOON_SECONDS = 20.0
CONFIGS: dict[Policy, dict[str, str]] = {
    "refuse-produce": {"retention.ms": "-1"},
    "drop-oldest": {"retention.ms": "-1", "gnomon.backlog.quota.policy": "drop-oldest"},
    "retention": {"retention.ms": str(RETENTION_SECONDS * 1000), "segment.ms": "1000"},
}
_NAMED = re.compile(r"of topic '([^']+)'")


async def keep_within_quota(
    cluster: WireCluster, seconds: float, *, policy: Policy = "refuse-produce", judged: bool = False
) -> None:
    """Writes to a topic, reads the topic and a shadow of it until some time after the storm, then reads the rest.

    Args:
        judged: whether the rules are checked from the beginning, as the storm has no faults that excuse brokers.

    Raises:
        AssertionError: a rule does not hold.
    """
    await _WrittenPartition(cluster, policy).run(seconds, judged)


class _WrittenPartition:
    """The topic, its shadow and their clients."""

    def __init__(self, cluster: WireCluster, policy: Policy) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._policy = policy
        self._source = f"quota-{policy}"
        self._topics = (self._source, f"{self._source}-shadow")
        self._truth = QuotaTruth(WITHIN_QUOTA, MEASURED_SECONDS)
        self._stream: Random = cluster.world.random(f"quota/{policy}")
        self._asker = SimulatedConsumer(cluster, self._source, 0, LogHistory(), name=f"asker-{policy}")
        self._last_write = False
        """Whether the writer ends with its next answer; so the outcome of the last record in the log is known."""
        self._over = False
        """Whether the readers read without pauses until they have all records."""

    async def run(self, seconds: float, judged: bool) -> None:
        """See `keep_within_quota`."""
        quota = {} if self._policy == "retention" else {"gnomon.backlog.quota.bytes": str(QUOTA_RECORDS * RECORD_BYTES)}
        segment = {"segment.bytes": str(4 * RECORD_BYTES)}
        calm_from = self._clock.monotonic() + seconds
        await create_topic(self._cluster, self._source, {**segment, **quota, **CONFIGS[self._policy]})
        await cast_shadow(self._cluster, *self._topics)
        begun = []
        async with trio.open_nursery() as nursery:
            for topic in self._topics:
                self._truth.add(topic)
                begun.append(trio.Event())
                nursery.start_soon(self._read, topic, begun[-1])
            for each in begun:
                await each.wait()
            async with trio.open_nursery() as watching:
                watching.start_soon(self._watch)
                async with trio.open_nursery() as writing:
                    writing.start_soon(self._write)
                    if not judged:
                        await self._clock.sleep(max(0.0, calm_from + SETTLE_SECONDS - self._clock.monotonic()))
                    self._truth.judge_from(self._clock.monotonic())
                    await self._clock.sleep(max(CALM_SECONDS, calm_from + CALM_SECONDS - self._clock.monotonic()))
                    self._last_write = True
                watching.cancel_scope.cancel()
            self._over = True
        self._check_missed()
        await (self._all_is_gone() if self._policy == "retention" else self._accepted_soon())

    def _check_missed(self) -> None:
        for topic in self._topics:
            assert not self._truth.missing(topic)
            missed = self._truth.missed(topic)
            assert self._policy == "drop-oldest" or not missed, f"{topic}: {sorted(missed)[:5]} were deleted unread"

    async def _all_is_gone(self) -> None:
        """Waits until retention has deleted all records, which are old and read."""
        with trio.move_on_after(RETENTION_SECONDS + SOON_SECONDS):
            while True:
                start, end = await self._bounds()
                if start == end:
                    return
                await self._clock.sleep(1.0)
        raise ProduceRefused(f"{self._source} begins at {start} and ends at {end}, although all records were read")

    async def _accepted_soon(self) -> None:
        """Waits until a producer is accepted, as all records are acknowledged."""
        with trio.move_on_after(STORED_SECONDS + MEASURED_SECONDS + SOON_SECONDS):
            while True:
                (answer, _), _ = await ask_until(self._cluster, self._produce, self._leader)
                if answer.error_code == 0:
                    return
                await self._clock.sleep(1.0)
        raise ProduceRefused(f"{self._source}: {answer.error_message}; all records were read long ago")

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _leader(self) -> WireConnection:
        return await self._cluster.leader(self._source, 0)

    async def _write(self) -> None:
        while True:
            try:
                connection = await self._leader()
                try:
                    return await self._write_by(connection)
                finally:
                    connection.close()
            except Unreachable:
                await self._clock.sleep(0.5)

    async def _write_by(self, connection: WireConnection) -> None:
        """Writes until the last record was answered, or the connection ends: then the last outcome is unknown."""
        answered = False
        while not (answered and self._last_write):
            await self._clock.sleep(self._stream.expovariate(RECORDS_A_SECOND))
            answer, sent = await self._produce(connection)
            if answer.error_code == 0:
                self._truth.accepted.add(answer.base_offset)
            else:
                end = await self._asker.offset(connection, LATEST)
                named = _NAMED.search(answer.error_message or "")
                assert named is not None, f"{self._source}: {answer.error_message}"
                self._cluster.world.logger.debug("refused_for_backlog", topic=named[1])
                self._truth.refused(named[1], end, sent)
            answered = True

    async def _produce(self, connection: WireConnection) -> tuple[PartitionProduceResponse, float]:
        """Sends a record; returns the answer, and the time of sending."""
        sent = self._clock.monotonic()
        batch = build_batch([Record(value=b"%f" % sent + bytes(980))], base_timestamp=self._clock.wall_ms())
        data = TopicProduceData(name=self._source, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
        response = await connection.request(request, PRODUCE_VERSION, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code and answer.error_code != ErrorCode.POLICY_VIOLATION:
            raise Unreachable(f"{self._source}: {ErrorCode(answer.error_code).name}")
        return answer, sent

    async def _bounds(self) -> tuple[int, int]:
        async def ask(connection: WireConnection) -> tuple[int, int]:
            return await self._asker.offset(connection, EARLIEST), await self._asker.offset(connection, LATEST)

        return (await ask_until(self._cluster, ask, self._leader))[0]

    async def _watch(self) -> None:
        """Checks the start of the log, and notes each loss of the connection to the leader."""
        alive = self._clock.monotonic()
        while True:
            try:
                connection = await self._leader()
                try:
                    while True:
                        asked = self._clock.monotonic()
                        start = await self._asker.offset(connection, EARLIEST)
                        end = await self._asker.offset(connection, LATEST)
                        alive = asked
                        if self._policy == "drop-oldest":
                            self._truth.starts(start, end, asked)
                        await self._clock.sleep(WATCH_SECONDS)
                finally:
                    connection.close()
            except Unreachable:
                for topic in self._topics:
                    self._truth.disturbed(topic, alive)
                await self._clock.sleep(WATCH_SECONDS)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read(self, topic: str, begun: trio.Event) -> None:
        """Reads with pauses; at the end until all records have come."""
        addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in self._cluster.hosts)
        lives = 0
        while not self._over or self._truth.missing(topic):
            lives += 1
            async with connect(addresses, world=self._cluster.world, name=f"{topic}/{lives}") as client:
                with trio.move_on_after(min(self._stream.expovariate(1 / READ_SECONDS_MEAN), READ_SECONDS_MAX)):
                    await self._live(client, topic, begun)
            self._truth.disturbed(topic, self._clock.monotonic())
            if not self._over:
                await self._clock.sleep(self._stream.expovariate(1 / IDLE_SECONDS_MEAN))

    async def _live(self, client: NativeClient, topic: str, begun: trio.Event) -> None:
        try:
            consumer = await client.subscribe(topic, "reader", initial_position="earliest", queue_records=4)
        except AWAY:
            await self._clock.sleep(0.5)
            return
        begun.set()
        while True:
            try:
                message = await consumer.receive()
            except ConsumerClosed:
                return
            except RecordsMissed as missed:
                await self._clock.sleep(2 * WATCH_SECONDS)  # the previous broker may have ended
                self._truth.told(topic, missed.first, missed.end, self._clock.monotonic())
                continue
            self._truth.got(topic, message.offset)
            consumer.ack(message)
            self._truth.acked(topic, message.offset, self._clock.monotonic())
