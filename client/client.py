"""The native client: durable subscriptions over any number of partitions, brokers and connections.

    async with gnomon.connect("127.0.0.1:6650") as client:
        consumer = await client.subscribe("flights", "billing", type="shared", initial_position="earliest")
        async for message in consumer:
            print(message.value)
            consumer.ack(message)

1. A client has at most one connection to each address of a broker, for all its consumers (`leaders`).
2. A consumer that has lost a broker subscribes again by itself, at the partition's new leader (`attachments`).
3. Acknowledgements and permits (for further records) are gathered for a moment over all consumers, and sent together
   (`ack_sender`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

import trio

from gnomon.client.ack_sender import AckSender
from gnomon.client.addresses import Address, parse_addresses
from gnomon.client.attachments import Attachments
from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.consumer import Consumer, Listener, OnMissed
from gnomon.client.consumer_options import QUEUE_RECORDS, ConsumerOptions, Position, Type, check_name
from gnomon.client.errors import BrokerUnreachable, InvalidCall, NativeError, OutcomeUnknown, Retriable
from gnomon.client.leaders import TRY_SECONDS
from gnomon.client.part import Part
from gnomon.client.read_plans import ReadPlans
from gnomon.client.subscriptions import Subscriptions
from gnomon.client.tables.listed_table import ListedTable, list_tables
from gnomon.client.tables.table import Table
from gnomon.client.writes.arguments import checked_partition, checked_terms
from gnomon.client.writes.client_write import Previous, WriteRecord
from gnomon.client.writes.end import End
from gnomon.client.writes.writer import Writer
from gnomon.client.writes.writes import Writes
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN
from gnomon.log.term_headers import TOKEN_BYTES_MAX
from gnomon.runtime.background import background
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import World
from gnomon.wire.kafka.records import Header

REFRESH_SECONDS = 30.0
"""The interval at which the client looks for new partitions of its topics."""


class NativeClient:
    """A client, made by `connect`; its consumers and connections end with the block of `connect`."""

    def __init__(self, world: World, addresses: Sequence[Address], nursery: trio.Nursery, name: str) -> None:
        self.world = world
        self._acks = AckSender(world.clock)
        self._random = world.random(f"native-client/{name}")
        self._nursery = nursery
        self._attachments = Attachments(world, addresses, nursery, self._acks, f"{self._random.getrandbits(64):016x}")
        self._leaders = self._attachments.leaders
        self.subscriptions = Subscriptions(self._leaders)
        """The subscriptions of all topics, for operators."""
        self.read_plans = ReadPlans(self._leaders)
        """Where the records of topics are stored, for readers that get them from bookies."""
        self._consumers: dict[Consumer, None] = {}
        self.writes = Writes(world, self._leaders, nursery)
        """The writes without an outcome."""

    # --- writing ------------------------------------------------------------------------------------------------

    async def write(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        transaction_id: int | None = None,
        expected: SN | Dlsn | None = None,
        token: bytes | None = None,
    ) -> SN:
        """Appends one record, and returns its SN once it is durable.

        Writes of one client are independent: they reach a partition in the order of the calls, unless one is refused.

        Args:
            transaction_id: a number of the caller's, from 0 on, that never falls along the log. The record has it in
                the header `gnomon.transaction.id`. The topic needs `gnomon.conditional.write=true`.
            expected: the record is written only if the log ends with this one: with all fields of the SN that are set,
                or with the record at this DLSN. `EMPTY` expects a log that was never written to.
            token: the record is written only if this is the fencing token of the partition.

        Raises:
            CasWriteException: the log ends with another record, `current`; nothing was written.
            TransactionOutOfOrder: a higher transaction id was given before; nothing was written.
            TokenMismatch: the partition has another token, `current`; nothing was written.
            InvalidRecords: the broker does not take the record as it is.
            NoSuchTopic, NotAuthorized, InvalidCall: the broker or the client refused the call.
            OutcomeUnknown: no answer came within 30 s: the record may have been written, now or later.
            BrokerUnreachable: no broker has answered for 5 s, and nothing was sent.
            Unavailable: no leader took the record within 30 s; nothing was sent.
        """
        records = [WriteRecord(value, key, headers)]
        return await self.writes.write(topic, partition, records, transaction_id, expected, token)

    async def write_batch(
        self,
        topic: str,
        records: Iterable[bytes | WriteRecord | None],
        *,
        partition: int = 0,
        transaction_id: int | None = None,
        expected: SN | Dlsn | None = None,
        token: bytes | None = None,
    ) -> SN:
        """`write` for several records, all of which are written or none; returns the SN of the last one.

        Args:
            records: values, or records with keys and headers; 1 to 20,000.
        """
        return await self.writes.write(topic, partition, records, transaction_id, expected, token)

    @asynccontextmanager
    async def writer(self, topic: str, *, partition: int = 0, token: bytes | None = None) -> AsyncIterator[Writer]:
        """A writer of a chain of records, which are sent ahead of their answers.

        The block ends once all writes have an outcome; an exception ends it at once.

        Args:
            token: records are written only if this is the fencing token of the partition.

        Raises:
            InvalidCall: the partition or the token is not valid.
        """
        writer = self.writes.open_writer(topic, partition, token)
        try:
            yield writer
            await writer.flush()
        finally:
            self.writes.close_writer(writer)

    async def fence(
        self,
        topic: str,
        partition: int,
        new_token: bytes,
        *,
        expected: SN | Dlsn | None = None,
        token: bytes | None = None,
    ) -> None:
        """Gives a partition a fencing token: from then on no write with another token is acknowledged, by any broker.

        Writes without a token are taken as before. A fence with the token that the partition has changes nothing, so it
        can be repeated.

        Args:
            new_token: 1 to 36 bytes, or empty for no token.
            expected: how the log has to end, as for `write`.
            token: the token that the partition has to have.

        Raises:
            CasWriteException, TokenMismatch: the log ends otherwise, or has another token; nothing was changed.
            NoSuchTopic, NotAuthorized, InvalidCall: the broker or the client refused the call.
            OutcomeUnknown: no answer came within 30 s: the partition may have the token, now or later.
        """
        if not isinstance(new_token, bytes) or len(new_token) > TOKEN_BYTES_MAX:
            raise InvalidCall(f"a new fencing token is at most {TOKEN_BYTES_MAX} bytes, not {new_token!r:.100}")
        terms = checked_terms(expected, None, token)
        if isinstance(terms.expected, Previous):
            raise InvalidCall("PREVIOUS is for the writes of one `writer`: expect an SN or a Dlsn")
        stored = None if terms.expected is None else terms.expected.encode()
        try:
            await self._leaders.ask(topic, checked_partition(partition), "fence", new_token, stored, token)
        except (Retriable, BrokerUnreachable) as error:
            raise OutcomeUnknown(f"whether the partition is fenced is unknown: {error}") from error

    async def end(self, topic: str, partition: int = 0) -> End:
        """The last record of a partition and its fencing token: as they were at some instant during the call.

        Raises:
            NoSuchTopic, NotAuthorized, InvalidCall: the broker refused the call.
            Unavailable: no broker was certain to lead the partition, for 30 s.
            BrokerUnreachable: no broker has answered for 5 s.
        """
        return End.decode(await self._leaders.ask(topic, checked_partition(partition), "end"))

    # --- subscribing --------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        name: str,
        *,
        type: Type = "exclusive",
        initial_position: Position = "latest",
        queue_records: int = QUEUE_RECORDS,
        ack_seconds: float | None = None,
        listener: Listener | None = None,
        on_missed: OnMissed | None = None,
    ) -> Consumer:
        """Consumes a durable subscription, and creates it if none has this name.

        Args:
            type: exclusive (one consumer), failover (one at a time), shared (batches in turn) or key_shared (records
                of one key to one consumer, in order). All consumers of a subscription use the same type.
            initial_position: where a new subscription begins.
            queue_records: how many records of a partition may wait in this process; at least 1.
            ack_seconds: a received message that is not acknowledged for this time is delivered again: at least 0.1;
                None for never.
            listener: is called with each message as it arrives, in place of `receive`; it must neither wait nor raise.
                A batch that cannot be read ends the calls: see `Consumer.error`.
            on_missed: is called in the same way with `RecordsMissed`, which `receive` raises otherwise.

        Raises:
            NoSuchTopic, SubscriptionTaken, InvalidCall, NotAuthorized: the broker refused.
            BrokerUnreachable: no broker has answered for 5 s.
            Unavailable: no broker could subscribe within 30 s.
            BrokerFailed: the broker failed with another error.
        """
        consumers = await self.subscribe_many(
            topic,
            [name],
            type=type,
            initial_position=initial_position,
            queue_records=queue_records,
            ack_seconds=ack_seconds,
            listener=listener,
            on_missed=on_missed,
        )
        return consumers[0]

    async def subscribe_many(
        self,
        topic: str,
        names: Collection[str],
        *,
        type: Type = "exclusive",
        initial_position: Position = "latest",
        queue_records: int = QUEUE_RECORDS,
        ack_seconds: float | None = None,
        listener: Listener | None = None,
        on_missed: OnMissed | None = None,
    ) -> list[Consumer]:
        """`subscribe` for many subscriptions of one topic, a thousand in a call to a broker.

        All subscriptions are consumed when it returns, and none if it raises.
        """
        options = ConsumerOptions(type, initial_position, queue_records, ack_seconds)
        if isinstance(names, str):
            raise InvalidCall(f"names are several names, not the text {names!r}")
        for name in names:
            check_name(name)
        leaders = await self._leaders.find(topic)
        consumers = [self._consumer(topic, name, options, listener, on_missed) for name in names]
        for consumer in consumers:
            consumer.grow(len(leaders), initial_position)
        try:
            await self._attachments.attached(part for consumer in consumers for part in consumer.parts)
        except BaseException:
            self._end_consumers(consumers)
            raise
        return consumers

    def _consumer(
        self,
        topic: str,
        name: str,
        options: ConsumerOptions,
        listener: Listener | None,
        on_missed: OnMissed | None,
    ) -> Consumer:
        consumer = Consumer(
            topic,
            name,
            options,
            listener,
            on_missed,
            attachments=self._attachments,
            acks=self._acks,
            clock=self.world.clock,
            close=self.close_consumers,
        )
        self._consumers[consumer] = None
        return consumer

    async def close_consumers(self, consumers: Iterable[Consumer]) -> None:
        """Closes consumers, and waits until their brokers know. A caller that is cancelled has closed them, too."""
        await self._attachments.confirm(self._end_consumers(consumers))

    def _end_consumers(self, consumers: Iterable[Consumer]) -> list[BrokerConnection[Part]]:
        """Closes consumers, and returns the connections to the brokers that it was reported to."""
        self._acks.flush()
        ended = list(consumers)
        for consumer in ended:
            consumer.end()
            self._consumers.pop(consumer, None)
        return self._attachments.end(part for consumer in ended for part in consumer.parts)

    # --- tables -------------------------------------------------------------------------------------------------

    def table(self, topic: str) -> Table:
        """The table that a topic with `gnomon.view=kv` is; nothing is asked before its first call."""
        return Table(self.world, self._leaders, self.writes, topic, self._random, self._nursery)

    async def tables(self) -> list[ListedTable]:
        """All tables of the cluster that this client may see, in order of name.

        Raises:
            NativeError: no broker answered, or it has refused.
        """
        return await list_tables(self._leaders)

    # --- in the background --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps consumers attached, sends acknowledgements, and enforces ack time-outs, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._acks.run)
            nursery.start_soon(self._refresh_forever)
            nursery.start_soon(self._expire_forever)
            await self._attachments.run(nursery)

    async def _refresh_forever(self) -> None:
        while True:
            await self.world.clock.sleep(REFRESH_SECONDS)
            topics: dict[str, list[Consumer]] = {}
            for consumer in self._consumers:
                topics.setdefault(consumer.topic, []).append(consumer)
            for topic, consumers in topics.items():
                try:
                    partitions = len(await self._leaders.look_up(topic))
                except NativeError:
                    continue
                for consumer in consumers:
                    if not consumer.closed:
                        consumer.grow(partitions, "earliest")  # with the records written since the partition was made

    async def _expire_forever(self) -> None:
        while True:
            timed = [each.options.ack_seconds for each in self._consumers if each.options.ack_seconds is not None]
            await self.world.clock.sleep(min([1.0, *(seconds / 4 for seconds in timed)]))
            now = self.world.clock.monotonic()
            for consumer in list(self._consumers):
                if consumer.options.ack_seconds is not None:
                    consumer.expire(now)

    async def close(self) -> None:
        """Sends outstanding acknowledgements, then closes every consumer and connection."""
        with trio.move_on_after(TRY_SECONDS / 10):
            await self.close_consumers(list(self._consumers))
        self.writes.close()
        self._leaders.close()


@asynccontextmanager
async def connect(address: str, *, world: World | None = None, name: str = "") -> AsyncIterator[NativeClient]:
    """A native client, for as long as the block lasts; an exception of the block is raised as it is, in no group.

    It connects with the first call, which raises BrokerUnreachable if no broker answers. A failure of the client's own
    tasks, which is a defect, cancels the block and is raised in an ExceptionGroup.

    Args:
        address: `HOST:PORT[,HOST:PORT…]`, the native addresses of some brokers; one that answers is enough.
        world: None for the real world, a simulated world in simulations.
        name: distinguishes the clients of one simulated world.

    Raises:
        ValueError: the address has another form.
    """
    addresses = parse_addresses(address)
    if world is None:
        async with open_trio_world() as real, _connected(real, addresses, name) as client:
            yield client
    else:
        async with _connected(world, addresses, name) as client:
            yield client


@asynccontextmanager
async def _connected(world: World, addresses: Sequence[Address], name: str) -> AsyncIterator[NativeClient]:
    async with background() as nursery:
        client = NativeClient(world, addresses, nursery, name)
        nursery.start_soon(client.run)
        try:
            yield client
        finally:
            with trio.CancelScope(shield=True):
                await client.close()
