"""Storm clients that append on conditions, race each other, and fence each other; `conditional_truth` has the rules.

scenario = LogScenario(..., beside={"races": race_conditionally})
"""

from __future__ import annotations

import re
from functools import partial
from random import Random

import trio

import gnomon.client.errors as errors
from gnomon.client.client import NativeClient, connect
from gnomon.client.writes.client_write import PREVIOUS
from gnomon.log.sn import EMPTY, SN
from gnomon.log.term_headers import EXPECTED_OFFSET, FENCING_TOKEN
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import PRODUCE_VERSION, SimulatedConsumer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import read_shadow
from gnomon.testing.storms.writes.conditional_truth import ConditionalTruth, WriteAttempt
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.records import Record, build_batch

WRITERS = 3
STEPS_A_SECOND = 4.0
CHAIN_MAX = 8
AWAY = (errors.NoSuchTopic, errors.Retriable, Unreachable)
"""Errors to retry: the broker does not know the new topic yet, or is away."""


async def race_conditionally(
    cluster: WireCluster, seconds: float, *, name: str = "raced", shadow: bool = False
) -> None:
    """Writers race to append to one partition for `seconds`; then the log is read and judged.

    Args:
        shadow: the log is also read through a shadow of the topic, meanwhile and at the end.

    Raises:
        AssertionError: `ConditionalTruth` found an error.
    """
    await create_topic(cluster, name, {"gnomon.conditional.write": "true"})
    truth = ConditionalTruth()
    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(_Racer(cluster, name, f"{name}-{number}", truth).run, seconds)
        if shadow:
            nursery.start_soon(partial(read_shadow, source=name, shadow=f"{name}-shadow"), cluster, seconds)
    await _judge(cluster, name, truth)


async def _judge(cluster: WireCluster, topic: str, truth: ConditionalTruth) -> None:
    reader = SimulatedConsumer(cluster, topic, 0, LogHistory(), name=f"final-{topic}")
    final = await reader.read_all()
    won = sum(attempt.offset is not None for attempt in truth.attempts.values())
    lost = sum(attempt.is_refused for attempt in truth.attempts.values())
    for counter, count in (("wins", won), ("refusals", lost), ("fences", len(truth.fences)), ("ends", len(truth.ends))):
        if count:
            cluster.world.logger.debug(f"conditional_{counter}", count=count)
    truth.check(final)


class _Racer:
    """One writer: it appends behind what it believes to be the end, alone, in chains, and under a token of its own."""

    def __init__(self, cluster: WireCluster, topic: str, name: str, truth: ConditionalTruth) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._clock = cluster.world.clock
        self._addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
        self._topic = topic
        self._name = name
        self._truth = truth
        self._stream: Random = cluster.world.random(f"racer/{name}")
        self._known = EMPTY
        """The last record, as far as this writer knows."""
        self._token: bytes | None = None
        self._values = 0

    async def run(self, seconds: float) -> None:
        """Writes for `seconds`."""
        until = self._clock.monotonic() + seconds
        async with connect(self._addresses, world=self._world, name=self._name) as client:
            while self._clock.monotonic() < until:
                await self._clock.sleep(self._stream.expovariate(STEPS_A_SECOND))
                step = self._stream.choice([*[self._write] * 3, self._produce, self._chain, self._fence, self._look])
                try:
                    await step(client)
                except (*AWAY, errors.OutcomeUnknown):
                    await self._clock.sleep(0.5)

    def _attempt(self, expected: SN | None) -> WriteAttempt:
        self._values += 1
        sequence_id = None if expected is None else expected.sequence_id
        value = f"{self._name}/{self._values}".encode()
        return self._truth.attempt(value, sequence_id, self._clock.monotonic(), self._token)

    async def _write(self, client: NativeClient) -> None:
        expected = self._expectation()
        attempt = self._attempt(expected)
        transaction_id = round(self._clock.monotonic() * 1000) if self._stream.random() < 0.3 else None
        try:
            sn = await client.write(
                self._topic, attempt.value, transaction_id=transaction_id, expected=expected, token=self._token
            )
        except errors.CasWriteException as refused:
            self._lost(attempt, refused)
        except errors.TokenMismatch as refused:
            self._fenced(attempt, refused.current)
        except errors.TransactionOutOfOrder:
            attempt.refused(None, self._clock.monotonic())
        else:
            attempt.written(sn.sequence_id or 0, self._clock.monotonic())
            self._known = sn

    def _expectation(self) -> SN | None:
        """All of the known SN, a part of it, or nothing."""
        known = self._known
        parts = [known, SN(sequence_id=known.sequence_id), SN(known.dlsn, sequence_id=known.sequence_id), None]
        return self._stream.choice(parts)

    def _fenced(self, attempt: WriteAttempt, token: bytes) -> None:
        attempt.refused(None, self._clock.monotonic(), token)
        self._token = None

    def _lost(self, attempt: WriteAttempt, refused: errors.CasWriteException) -> None:
        attempt.refused(refused.current.sequence_id, self._clock.monotonic())
        self._known = SN(sequence_id=refused.current.sequence_id)

    async def _produce(self, client: NativeClient) -> None:
        """Writes by Kafka's protocol, with the terms in the headers of a record."""
        end = -1 if self._known.sequence_id is None else self._known.sequence_id
        attempt = self._attempt(SN(sequence_id=end))
        headers = [(EXPECTED_OFFSET, b"%d" % (end + 1))]
        if self._token is not None:
            headers.append((FENCING_TOKEN, self._token))
        record = Record(value=attempt.value, headers=tuple(headers))
        batch = build_batch(
            [record], base_timestamp=self._clock.wall_ms(), compression=self._stream.choice(list(Codec))
        )
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
        connection = await self._cluster.leader(self._topic, 0)
        try:
            answer = await connection.request(request, PRODUCE_VERSION, ProduceResponse)
        finally:
            connection.close()
        (produced,) = answer.responses[0].partition_responses
        if produced.error_code == ErrorCode.INVALID_RECORD:
            self._take_refusal(attempt, produced.error_message or "")
        elif produced.error_code == ErrorCode.NONE:
            attempt.written(produced.base_offset, self._clock.monotonic())
            self._known = SN(sequence_id=produced.base_offset)

    def _take_refusal(self, attempt: WriteAttempt, text: str) -> None:
        found = re.match(r"CAS_WRITE_EXCEPTION 525 expected=\d+ current=(\d+): ", text)
        if found is not None:
            attempt.refused(int(found[1]) - 1, self._clock.monotonic())
            self._known = SN(sequence_id=int(found[1]) - 1)
        else:
            token = re.match(r"TOKEN_MISMATCH given='.*' current='(.*)': ", text)
            assert token is not None, text
            self._fenced(attempt, token[1].encode())

    async def _chain(self, client: NativeClient) -> None:
        """Several writes ahead of their answers; each expects the one before it."""
        async with client.writer(self._topic, token=self._token) as writer:
            begin = -1 if self._known.sequence_id is None else self._known.sequence_id
            sent = []
            for number in range(self._stream.randint(1, CHAIN_MAX)):
                expected = SN(sequence_id=begin + number)
                attempt = self._attempt(expected)
                sent.append((attempt, writer.send(attempt.value, expected=PREVIOUS if number else expected)))
            is_judged = True
            for attempt, pending in sent:
                try:
                    sn = await pending.sn()
                except errors.CasWriteException as refused:
                    if is_judged:
                        self._lost(attempt, refused)
                    else:
                        attempt.refused(None, self._clock.monotonic())  # behind the refused one
                    is_judged = False
                except errors.TokenMismatch as refused:
                    self._fenced(attempt, refused.current)
                    is_judged = False
                else:
                    attempt.written(sn.sequence_id or 0, self._clock.monotonic())
                    self._known = sn

    async def _fence(self, client: NativeClient) -> None:
        """Takes the partition over under a new token, or gives its token up."""
        if self._token is not None and self._stream.random() < 0.5:
            self._token = None
            return
        self._values += 1
        token, called = f"{self._name}/{self._values}".encode(), self._clock.monotonic()
        self._truth.fences_with(token, called)
        await client.fence(self._topic, 0, token)
        self._truth.fenced(token, called, self._clock.monotonic())
        self._token = token

    async def _look(self, client: NativeClient) -> None:
        called = self._clock.monotonic()
        end = await client.end(self._topic)
        assert end.sn.sequence_id is not None, "an end has a sequence id"
        self._truth.ended(end.sn.sequence_id, called, self._clock.monotonic())
        self._known = end.sn
