"""The blocking client against real brokers, from one thread and from two."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from flights import NOTHING_SECONDS, produce

import gnomon
from gnomon.client.blocking import BlockingConsumer
from gnomon.client.errors import ConsumerClosed, InvalidCall
from gnomon.testing.kafka_broker import KafkaBroker


def test_a_program_without_trio_uses_the_blocking_client(broker: KafkaBroker) -> None:
    produce(broker, range(250))
    with gnomon.connect_blocking(broker.native_address) as client:
        consumer = client.subscribe("flights", "billing", initial_position="earliest")
        got = []
        for message in consumer:
            got.append(int(message.value or b""))
            consumer.ack(message)
            if len(got) == 250:
                break
        assert got == list(range(250))
        assert consumer.receive(seconds=0.1) is None
        assert consumer.backlog() == 0
        consumer.seek_to_offset(0, 240)
        found = consumer.receive(seconds=10)
        assert found is not None
        assert found.offset == 240
        consumer.close()
        with pytest.raises(ConsumerClosed):
            consumer.receive()
    with pytest.raises(ConsumerClosed, match="connect again"):
        consumer.receive()


def test_a_blocking_client_survives_invalid_acknowledgements(broker: KafkaBroker) -> None:
    produce(broker, range(1))
    with gnomon.connect_blocking(broker.native_address) as client:
        consumer = client.subscribe("flights", "billing", initial_position="earliest")
        message = consumer.receive(seconds=30)
        assert message is not None
        nothing: Any = None
        for answer in (consumer.ack, consumer.ack_up_to, consumer.nack):
            with pytest.raises(InvalidCall, match="not None"):
                answer(nothing)
        with pytest.raises(InvalidCall, match="delay_seconds"):
            consumer.nack(message, float("inf"))
        consumer.ack(message)
        assert consumer.backlog() == 0


def test_a_blocking_seek_of_one_partition_keeps_the_messages_fetched_from_the_others() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": True}
    with KafkaBroker(settings=settings) as broker:
        produce(broker, range(60))
        with gnomon.connect_blocking(broker.native_address) as client:
            consumer = client.subscribe("flights", "billing", initial_position="earliest")
            time.sleep(1)  # so that one call fetches records of all partitions
            seen = [int(consumer.receive().value or b"") for _ in range(2)]
            consumer.seek_to_offset(0, 0)
            while set(seen) != set(range(60)):
                message = consumer.receive(seconds=10)
                assert message is not None, f"only {len(set(seen))} of 60 were given"
                seen.append(int(message.value or b""))
            consumer.unsubscribe()
            with pytest.raises(ConsumerClosed):
                consumer.receive()


def test_a_blocking_receive_without_a_wait_returns_the_messages_present(broker: KafkaBroker) -> None:
    produce(broker, range(10))
    with gnomon.connect_blocking(broker.native_address) as client:
        consumer = client.subscribe("flights", "billing", initial_position="earliest")
        until = time.monotonic() + 10
        found: list[int] = []
        while len(found) < 10 and time.monotonic() < until:
            message = consumer.receive(seconds=0)
            found += [] if message is None else [message.offset]
        assert found == list(range(10))
        assert consumer.receive(seconds=0) is None


def test_a_blocking_seek_loses_no_message_of_a_receiving_thread(broker: KafkaBroker) -> None:
    produce(broker, range(50))
    with gnomon.connect_blocking(broker.native_address) as client:
        for turn in range(10):
            consumer = client.subscribe("flights", f"billing-{turn}", initial_position="latest")
            found: list[int] = []

            def receive(consumer: BlockingConsumer = consumer, found: list[int] = found) -> None:
                while len(found) < 50 and (message := consumer.receive(seconds=10)) is not None:
                    consumer.ack(message)
                    found.append(message.offset)

            receiver = threading.Thread(target=receive)
            receiver.start()
            time.sleep(0.05)  # the receiver waits by now
            consumer.seek("earliest")
            receiver.join()
            assert sorted(found) == list(range(50))
            consumer.close()


class Interrupted(BaseException):
    """Replaces KeyboardInterrupt, which would end pytest."""


def interrupted_while(call: Callable[[], object]) -> None:
    """Raises Interrupted in this thread while it waits for `call`."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, NOTHING_SECONDS)
    try:
        with pytest.raises(Interrupted):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_blocking_receive_that_is_interrupted_keeps_messages_for_the_next_call(broker: KafkaBroker) -> None:
    produce(broker, range(1))
    with gnomon.connect_blocking(broker.native_address) as client:
        consumer = client.subscribe("flights", "billing", initial_position="earliest")
        assert consumer.receive(seconds=30) is not None
        interrupted_while(consumer.receive)
        produce(broker, range(1, 4))
        found = [consumer.receive(seconds=10) for _ in range(3)]
        assert [message and message.offset for message in found] == [1, 2, 3]
