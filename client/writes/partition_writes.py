"""Sends the writes of one writer to the leader of one partition, and sends them again when that fails.

1. The leader is looked up again after each failure. No other connection is used while an answer may still arrive over
   the one before.
2. The writes of one turn of the event loop leave in the same batches.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.errors import (
    BatchEarly,
    BrokerFailed,
    BrokerUnreachable,
    NativeError,
    NoSuchTopic,
    NotTaken,
    Unavailable,
)
from gnomon.client.leaders import REACH_SECONDS, RETRIABLE, RETRY, TRY_SECONDS, Leaders
from gnomon.client.part import Part
from gnomon.client.writes.client_write import ClientWrite
from gnomon.client.writes.write_pipeline import NumberedBatch, WritePipeline
from gnomon.log.sn import SN
from gnomon.runtime.rpc.errors import NotSent
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import World

TICK_SECONDS = 0.5
"""The interval at which writes are given up that wait for too long."""


class PartitionWrites:
    """The writes of one writer to one partition; `run` sends them."""

    def __init__(self, world: World, leaders: Leaders, topic: str, partition: int, *, chain: bool) -> None:
        """Nothing to send yet; see `WritePipeline` for `chain`."""
        self._world = world
        self._leaders = leaders
        self._topic = topic
        self._partition = partition
        self._pipeline = WritePipeline(chain=chain)
        self._topic_id: str | None = None
        """The id of the topic that is written to; None before the first look-up, and after the topic's end."""
        self._connection: BrokerConnection[Part] | None = None
        """The connection to the leader; None while it has to be looked up."""
        self._problem: Exception | None = None
        """The last failure, until a batch is written."""
        self._failures = 0
        self._pumping = False
        """Whether new batches are sent at the end of the turn."""
        self._changed = Signal()
        self._scope = trio.CancelScope()

    def add(self, write: ClientWrite) -> None:
        """Sends a write after all earlier ones."""
        self._pipeline.add(write)
        self._pump_soon()
        self._changed.notify()

    async def flushed(self) -> None:
        """Waits until every write has an outcome."""
        while not self._pipeline.idle:
            await self._changed.wait()

    def close(self, error: Exception) -> None:
        """Ends the writes that have no outcome, and `run`."""
        self._pipeline.end(error)
        self._changed.notify()
        self._scope.cancel()

    async def run(self) -> None:
        """Sends writes until `close`."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_forever)
                await self._send_forever()

    async def _send_forever(self) -> None:
        while True:
            while not self._needs_leader and not self._pipeline.stalled:
                await self._changed.wait()
            if self._pipeline.stalled and not self._pipeline.failing:
                self._pipeline.resume()
            elif self._pipeline.stalled:
                self._connection = None
                await self._pause()
            if not self._needs_leader or await self._reach_leader():
                self._resume()

    @property
    def _needs_leader(self) -> bool:
        return not self._pipeline.idle and (self._connection is None or self._pipeline.needs_producer)

    async def _reach_leader(self) -> bool:
        """Finds the leader and connects to it; returns False if that has to be tried again."""
        try:
            topic_id, leaders = await self._leaders.look_up_topic(self._topic)
            if self._topic_id not in (None, topic_id):
                self._pipeline.leave_topic(_recreated(self._topic))
            self._topic_id = topic_id
            if self._partition >= len(leaders):
                raise NoSuchTopic(f"topic '{self._topic}' has {len(leaders)} partitions, and none of {self._partition}")
            leader = leaders[self._partition]
            if leader is None:
                raise Unavailable(f"partition {self._partition} of '{self._topic}' has no leader at the moment")
            connection = self._leaders.connection(leader)
            await connection.opened()
            if self._pipeline.needs_producer:
                self._pipeline.number(await connection.call("producer_id", self._topic))
        except RETRIABLE as error:
            self._problem = error
            if isinstance(error, BrokerUnreachable):
                self._pipeline.expire_unsent(self._now + TRY_SECONDS - REACH_SECONDS, error)
            await self._pause()
            return False
        except NativeError as error:
            self._pipeline.end(error)
            self._topic_id = None
            return False
        self._connection = connection
        return True

    async def _pause(self) -> None:
        self._failures += 1
        await self._world.clock.sleep(RETRY.seconds(self._failures))

    @property
    def _now(self) -> float:
        return self._world.clock.monotonic()

    def _resume(self) -> None:
        if self._pipeline.stalled:
            for batch in self._pipeline.resume():
                self._send(batch)
        self._pump()

    def _pump_soon(self) -> None:
        if not self._pumping and self._connection is not None:
            self._pumping = True
            self._world.network.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        while self._connection is not None:
            batch = self._pipeline.next_batch(self._world.clock.wall_ms())
            if batch is None:
                return
            self._send(batch)

    def _send(self, batch: NumberedBatch) -> None:
        assert self._connection is not None, "batches are sent over a connection"
        expected = None if batch.expected is None else batch.expected.encode()
        args = (self._topic, self._topic_id, self._partition, expected, batch.token, batch.has_transaction)
        self._connection.rpc.send("write", args, batch.data, partial(self._answered, batch))

    def _answered(self, batch: NumberedBatch, value: Any, attachment: memoryview, error: Exception | None) -> None:
        pipeline = self._pipeline
        if error is None:
            self._written(batch, value)
        elif isinstance(error, RETRIABLE):
            self._problem = error
            pipeline.lost(batch, had_effect=not isinstance(error, (NotSent, NotTaken)))
        elif isinstance(error, BatchEarly):
            pipeline.early(batch)
        elif isinstance(error, NoSuchTopic):
            pipeline.early(batch)
            self._connection = None
        elif isinstance(error, NativeError):
            pipeline.refused(batch, error)
        else:
            pipeline.give_up(batch, error)
        self._pump_soon()
        self._changed.notify()

    def _written(self, batch: NumberedBatch, value: Any) -> None:
        try:
            last = SN.decode(value)
        except ValueError as error:
            self._pipeline.give_up(batch, BrokerFailed(f"the broker has answered in another form: {error}"))
            return
        self._problem, self._failures = None, 0
        self._pipeline.written(batch, last)

    async def _expire_forever(self) -> None:
        while True:
            while self._pipeline.idle:
                await self._changed.wait()
            await self._world.clock.sleep(TICK_SECONDS)
            self._pipeline.expire(self._now, self._problem)
            self._changed.notify()


def _recreated(topic: str) -> NoSuchTopic:
    return NoSuchTopic(f"topic '{topic}' was deleted and created again: the write was meant for the old one")
