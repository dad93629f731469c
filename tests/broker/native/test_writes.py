"""Writes of native clients to a broker: conditions, repeats and failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from native_calls import native, play, writing

import gnomon
from gnomon.client.client import NativeClient
from gnomon.client.errors import (
    BrokerUnreachable,
    CasWriteException,
    InvalidCall,
    NoSuchTopic,
    OutcomeUnknown,
    TokenMismatch,
    TransactionOutOfOrder,
    WriterClosed,
)
from gnomon.client.leaders import REACH_SECONDS, TRY_SECONDS
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import EMPTY, SN
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest
from gnomon.wire.kafka.records import Record, build_batch

PREVIOUS = gnomon.PREVIOUS


async def log_of(client: NativeClient) -> list[bytes]:
    """The values of all records."""
    count = ((await client.end("orders")).sn.sequence_id or 0) + 1
    consumer = await client.subscribe("orders", "audit", initial_position="earliest")
    found = [(await consumer.receive()).value or b"" for _ in range(count)]
    await consumer.unsubscribe()
    return found


def test_a_write_has_the_place_that_a_consumer_sees() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        first = await client.write("orders", b"0", key=b"k", headers=[("trace", b"7")])
        second = await client.write_batch("orders", [b"1", gnomon.WriteRecord(None, b"k"), b"3"])
        consumer = await client.subscribe("orders", "one", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(4)]
        assert [message.value for message in messages] == [b"0", b"1", None, b"3"]
        assert (messages[0].key, messages[0].headers) == (b"k", (("trace", b"7"),))
        for message, sn in ((messages[0], first), (messages[3], second)):
            assert sn == SN(message.id, -1, message.offset)

    writing(scenario)


def test_a_consumer_of_a_shadow_sees_the_places_of_the_source() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("copy", partitions=-1, configs={"gnomon.shadow.source": "orders"})
        written = [await client.write("orders", b"%d" % number) for number in range(3)]
        consumer = await client.subscribe("copy", "one", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(3)]
        assert [SN(message.id, -1, message.offset) for message in messages] == written

    writing(scenario)


def test_only_the_first_of_two_writers_begins_a_topic() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        assert (await client.end("orders")).sn == EMPTY
        async with native(broker) as other:
            first = await client.write("orders", b"mine", expected=EMPTY)
            with pytest.raises(CasWriteException, match="does not end as expected") as refused:
                await other.write("orders", b"theirs", expected=EMPTY)
            assert refused.value.code == 525
            assert refused.value.current == first == (await other.end("orders")).sn
            await other.write("orders", b"theirs", expected=first.dlsn)
        assert await log_of(client) == [b"mine", b"theirs"]

    writing(scenario)


def test_every_field_that_is_set_has_to_match() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        await client.write_batch("orders", [b"0", b"1"])
        for wrong in (
            SN(sequence_id=0),
            SN(sequence_id=2),
            SN(Dlsn(0, 0, 0)),
            SN(Dlsn(0, 0, 1), sequence_id=0),
            SN(Dlsn(0, 1, 0), sequence_id=1),
            SN(transaction_id=0),
        ):
            with pytest.raises(CasWriteException):
                await client.write("orders", b"wrong", expected=wrong)
        last = await client.write("orders", b"2", expected=SN(Dlsn(0, 0, 1), -1, 1))
        assert last.sequence_id == 2

    writing(scenario)


def test_a_chain_is_written_in_order_ahead_of_its_answers() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        async with client.writer("orders") as writer:
            pending = [writer.send(b"0", expected=EMPTY)]
            pending += [writer.send(b"%d" % number, expected=PREVIOUS) for number in range(1, 50)]
        assert [(await each.sn()).sequence_id for each in pending] == list(range(50))
        assert await log_of(client) == [b"%d" % number for number in range(50)]

    writing(scenario)


def test_a_chain_that_lost_a_race_goes_on_only_with_what_it_expects() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        async with client.writer("orders") as writer:
            first = writer.send(b"0", expected=EMPTY)
            await first.sn()
            theirs = await client.write("orders", b"theirs")
            lost = [
                writer.send(b"lost", expected=PREVIOUS),
                writer.send(b"behind"),
                writer.send(b"far", expected=PREVIOUS),
            ]
            for pending in lost:
                with pytest.raises(CasWriteException) as refused:
                    await pending.sn()
                assert refused.value.current == theirs
            with pytest.raises(CasWriteException):
                await writer.send(b"not asked for").sn()
            assert (await writer.send(b"1", expected=theirs).sn()).sequence_id == 2
        assert await log_of(client) == [b"0", b"theirs", b"1"]

    writing(scenario)


def test_independent_writes_are_not_affected_by_a_refusal_of_another() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        outcomes: dict[int, object] = {}

        async def write(number: int) -> None:
            expected = SN(sequence_id=1000) if number % 3 == 0 else None
            try:
                outcomes[number] = (await client.write("orders", b"%d" % number, expected=expected)).sequence_id
            except CasWriteException:
                outcomes[number] = "refused"

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(write, number)
        assert sorted(number for number, outcome in outcomes.items() if outcome == "refused") == list(range(0, 30, 3))
        log = await log_of(client)
        assert len(log) == 20
        assert all(log[offset] == b"%d" % number for number, offset in outcomes.items() if isinstance(offset, int))

    writing(scenario)


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_write_that_landed_before_its_broker_died_is_written_once(power_lost: bool) -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        found: list[int | None] = []

        async def write(number: int) -> None:
            found.append((await client.write("orders", b"%d" % number)).sequence_id)

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(write, number)
                await trio.sleep(0.001)
                if number == 20:
                    nursery.start_soon(lambda: broker.restart(power_lost=power_lost))
        assert sorted(found) == list(range(40))
        assert sorted(await log_of(client)) == sorted(b"%d" % number for number in range(40))

    writing(scenario)


def test_a_chain_survives_the_death_of_its_broker() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        async with client.writer("orders") as writer:
            pending = [writer.send(b"0", expected=EMPTY)]
            for number in range(1, 40):
                pending.append(writer.send(b"%d" % number, expected=PREVIOUS))
                await trio.sleep(0.001)
                if number == 20:
                    await broker.restart()
            assert [(await each.sn()).sequence_id for each in pending] == list(range(40))
        assert await log_of(client) == [b"%d" % number for number in range(40)]

    writing(scenario)


def test_a_write_that_nobody_answers_is_unknown_and_never_failed() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        await client.write("orders", b"0")
        began = trio.current_time()
        broker.machine.disk.conditions.full = True
        with pytest.raises(OutcomeUnknown, match="unknown"):
            await client.write("orders", b"1")
        assert TRY_SECONDS - 1 < trio.current_time() - began < TRY_SECONDS + 2
        broker.machine.disk.conditions.full = False
        last = await client.write("orders", b"2")
        assert (await client.end("orders")).sn == last

    writing(scenario)


def test_a_write_that_was_never_sent_says_so() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        broker.machine.kill()
        began = trio.current_time()
        with pytest.raises(BrokerUnreachable, match="no broker answers"):
            await client.write("orders", b"0")
        assert trio.current_time() - began < REACH_SECONDS + 3
        await broker.start()
        assert (await client.write("orders", b"1", expected=EMPTY)).sequence_id == 0

    writing(scenario)


def test_a_cancelled_write_is_written_once_or_not_at_all() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        for number in range(20):
            with trio.move_on_after(number * 0.0003):
                await client.write("orders", b"%d" % number)
        last = await client.write("orders", b"last")
        log = await log_of(client)
        assert len(log) == len(set(log)) == (last.sequence_id or 0) + 1

    writing(scenario)


def test_a_closed_writer_or_client_takes_no_writes_and_ends_those_without_an_outcome() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        writer = client.writes.open_writer("orders", 0)
        pending = writer.send(b"0")
        client.writes.close_writer(writer)
        with pytest.raises((WriterClosed, OutcomeUnknown)):
            await pending.sn()
        with pytest.raises(WriterClosed):
            writer.send(b"1")
        async with native(broker) as other:
            writer = other.writes.open_writer("orders", 0)
        with pytest.raises(WriterClosed):
            writer.send(b"1")
        with pytest.raises(WriterClosed):
            await other.write("orders", b"1")

    writing(scenario)


def test_a_chain_ends_with_the_topic_that_it_was_begun_in() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        kafka = await broker.connect()
        async with client.writer("orders") as writer:
            await writer.send(b"0", expected=EMPTY).sn()
            await kafka.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
            with pytest.raises((NoSuchTopic, OutcomeUnknown), match="does not exist"):
                await writer.send(b"1", expected=PREVIOUS).sn()
            await kafka.create_topic("orders")
            assert (await client.end("orders")).sn == EMPTY
            with pytest.raises((NoSuchTopic, OutcomeUnknown), match="does not exist"):
                await writer.send(b"2", expected=PREVIOUS).sn()
            assert (await writer.send(b"3", expected=EMPTY).sn()).sequence_id == 0

    writing(scenario)


def test_independent_writes_go_on_in_a_topic_that_was_created_again() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        kafka = await broker.connect()
        await client.write_batch("orders", [b"0", b"1"])
        await kafka.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
        with pytest.raises(NoSuchTopic):
            await client.write("orders", b"lost", expected=EMPTY)
        await kafka.create_topic("orders")
        assert (await client.write("orders", b"2", expected=EMPTY)).sequence_id == 0
        await kafka.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
        await kafka.create_topic("orders")
        assert (await client.write("orders", b"3", expected=EMPTY)).sequence_id == 0
        assert await log_of(client) == [b"3"]

    writing(scenario)


def test_a_chain_does_not_go_on_in_a_topic_that_was_created_again() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        kafka = await broker.connect()
        async with client.writer("orders") as writer:
            await writer.send(b"0", expected=EMPTY).sn()
            await kafka.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
            await kafka.create_topic("orders")
            await client.write("orders", b"theirs")
            with pytest.raises(NoSuchTopic, match="created again"):
                await writer.send(b"1", expected=PREVIOUS).sn()
        assert await log_of(client) == [b"theirs"]

    writing(scenario)


def conditional(scenario: Callable[[EmbeddedBroker, BrokerClient, NativeClient], Awaitable[None]]) -> None:
    """Runs a scenario with a topic `orders` whose records may have terms."""

    async def run(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await kafka.create_topic("orders", configs={"gnomon.conditional.write": "true"})
        await scenario(broker, kafka, client)

    play(run)


def test_a_transaction_id_is_in_a_header_of_each_record_and_in_the_sn() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        records = [b"0", gnomon.WriteRecord(b"1", headers=[("h", b"v")])]
        last = await client.write_batch("orders", records, transaction_id=7)
        assert last == SN(Dlsn(0, 0, 1), 7, 1)
        consumer = await client.subscribe("orders", "one", initial_position="earliest")
        headers = [(await consumer.receive()).headers for _ in range(2)]
        assert headers == [(("gnomon.transaction.id", b"7"),), (("h", b"v"), ("gnomon.transaction.id", b"7"))]
        with pytest.raises(TransactionOutOfOrder, match="given=6 current=7") as refused:
            await client.write("orders", b"2", transaction_id=6)
        assert (refused.value.code, refused.value.current) == (513, last)
        assert (await client.write("orders", b"2", transaction_id=7, expected=SN(transaction_id=7))).sequence_id == 2
        assert (await client.write("orders", b"3")).transaction_id == 7
        assert (await client.end("orders")).sn == SN(Dlsn(0, 2, 0), 7, 3)

    conditional(scenario)


def test_transaction_ids_of_a_chain_are_those_of_each_write() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        async with client.writer("orders") as writer:
            pending = [writer.send(b"plain"), writer.send(b"3", transaction_id=3), writer.send(b"inherits")]
            pending += [
                writer.send(b"9", transaction_id=9),
                writer.send(b"low", transaction_id=2),
                writer.send(b"behind"),
            ]
            assert [(await each.sn())[1:] for each in pending[:4]] == [(-1, 0), (3, 1), (3, 2), (9, 3)]
            for each in pending[4:]:
                with pytest.raises(TransactionOutOfOrder):
                    await each.sn()
        assert await log_of(client) == [b"plain", b"3", b"inherits", b"9"]

    conditional(scenario)


def test_a_topic_without_the_config_takes_no_transaction_ids() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        with pytest.raises(InvalidCall, match=r"set gnomon\.conditional\.write=true"):
            await client.write("orders", b"0", transaction_id=7)
        assert (await client.end("orders")).sn == EMPTY

    writing(scenario)


def test_a_fenced_writer_is_refused_and_learns_the_token() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        await client.fence("orders", 0, b"old", expected=EMPTY)
        async with native(broker) as other, client.writer("orders", token=b"old") as writer:
            await writer.send(b"0").sn()
            await other.fence("orders", 0, b"new", token=b"old")
            assert await client.end("orders") == gnomon.End(SN(Dlsn(0, 1, 0), -1, 0), b"new")
            for pending in (writer.send(b"1"), writer.send(b"2")):
                with pytest.raises(TokenMismatch, match="given='old' current='new'") as refused:
                    await pending.sn()
                assert refused.value.current == b"new"
            with pytest.raises(TokenMismatch):
                await client.write("orders", b"3", token=b"old")
            with pytest.raises(TokenMismatch):
                await client.fence("orders", 0, b"third", token=b"old")
            with pytest.raises(CasWriteException):
                await client.fence("orders", 0, b"third", expected=EMPTY)
            await other.write("orders", b"4", token=b"new")
            await other.write("orders", b"5")
            await other.fence("orders", 0, b"")
            assert (await client.end("orders")).token == b""
        assert await log_of(client) == [b"0", b"4", b"5"]

    writing(scenario)


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_token_and_a_transaction_id_survive_the_broker(power_lost: bool) -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        await client.fence("orders", 0, b"w")
        last = await client.write("orders", b"0", transaction_id=5, token=b"w")
        await broker.restart(power_lost=power_lost)
        assert await client.end("orders") == gnomon.End(last, b"w")
        with pytest.raises(TokenMismatch):
            await client.write("orders", b"1", token=b"x")
        with pytest.raises(TransactionOutOfOrder):
            await client.write("orders", b"1", transaction_id=4)

    conditional(scenario)


def test_kafka_clients_and_native_ones_see_the_same_conditions() -> None:
    async def scenario(broker: EmbeddedBroker, kafka: BrokerClient, client: NativeClient) -> None:
        def batch(offset: int) -> bytes:
            headers = (("gnomon.expected.offset", b"%d" % offset),)
            return build_batch([Record(value=b"%d" % offset, headers=headers)], base_timestamp=0)

        assert (await kafka.produce("orders", batch(0))).error_code == 0
        assert (await client.write("orders", b"1", expected=SN(sequence_id=0))).sequence_id == 1
        for version in (9, 9, 13, 13):  # by name and by id; the second request of each takes the short way
            refused = await kafka.produce("orders", batch(1), version=version)
            assert refused.error_code == 87
            text = "CAS_WRITE_EXCEPTION 525 expected=1 current=2: record 0 of the batch would get offset 2"
            assert (refused.error_message, refused.record_errors) == (text, [])
        assert (await kafka.produce("orders", batch(2))).error_code == 0
        invalid = build_batch([Record(headers=(("gnomon.expected.offset", b"-3"),))], base_timestamp=0)
        refused = await kafka.produce("orders", invalid)
        assert (refused.error_code, refused.error_message) == (
            87,
            "the header gnomon.expected.offset of record 0 of the batch is b'-3': a decimal number from 0 to"
            " 9223372036854775807 is expected",
        )
        assert await log_of(client) == [b"0", b"1", b"2"]

    conditional(scenario)
