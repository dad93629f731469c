"""Writes of the native client to a real broker, also through the blocking client, and over its death."""

from __future__ import annotations

import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

import gnomon
from gnomon.testing.kafka_broker import KafkaBroker


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("flights", 1)])["flights"].result()
    return "flights"


def test_a_blocking_client_writes_on_conditions(broker: KafkaBroker, topic: str) -> None:
    with gnomon.connect_blocking(broker.native_address) as client:
        assert client.end(topic) == gnomon.End(gnomon.EMPTY)
        first = client.write(topic, b"0", key=b"k", headers=[("h", b"v")], expected=gnomon.EMPTY)
        with pytest.raises(gnomon.CasWriteException) as refused:
            client.write(topic, b"lost", expected=gnomon.EMPTY)
        assert refused.value.current == first
        second = client.write_batch(topic, [b"1", gnomon.WriteRecord(b"2")], expected=first)
        with client.writer(topic) as writer:
            third = writer.send(b"3", expected=second)
            fourth = writer.send_batch([b"4", b"5"], expected=gnomon.PREVIOUS)
            writer.flush()
            assert [each.sn().sequence_id for each in (third, fourth)] == [3, 5]
            with pytest.raises(gnomon.InvalidCall):
                writer.send(b"6", expected=gnomon.SN())
        assert client.end(topic).sn == fourth.sn()
        consumer = client.subscribe(topic, "audit", initial_position="earliest")
        messages = [consumer.receive(seconds=10) for _ in range(6)]
        assert [message and message.value for message in messages] == [b"%d" % number for number in range(6)]
        assert messages[0] is not None
        assert messages[0].headers == (("h", b"v"),)


def test_each_write_of_a_chain_is_there_once_after_kills_of_the_broker(broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with gnomon.connect(broker.native_address) as client:
            async with client.writer(topic) as writer:
                pending = [writer.send(b"0", expected=gnomon.EMPTY)]
                for number in range(1, 600):
                    pending.append(writer.send(b"%d" % number, expected=gnomon.PREVIOUS))
                    await trio.sleep(0.002)
                    if number % 200 == 0:
                        await trio.to_thread.run_sync(broker.kill)
                        await trio.to_thread.run_sync(broker.start)
                assert [(await each.sn()).sequence_id for each in pending] == list(range(600))
            consumer = await client.subscribe(topic, "audit", initial_position="earliest")
            assert [(await consumer.receive()).value for _ in range(600)] == [b"%d" % number for number in range(600)]

    trio.run(main)
