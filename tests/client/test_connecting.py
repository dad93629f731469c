"""Exceptions that leave the block of `connect`: the block's own, and failures of the client."""

from __future__ import annotations

from typing import NoReturn

import pytest
import trio
from native_calls import native, orders, values

import gnomon
from gnomon.client.ack_sender import AckSender
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        KeyboardInterrupt(),
        SystemExit(3),
        StopAsyncIteration("x"),
        trio.TooSlowError(),
        ExceptionGroup("mine", [KeyError("x")]),
    ],
)
def test_an_exception_of_the_block_is_raised_unchanged_in_the_production_world(error: BaseException) -> None:
    async def main() -> None:
        async with gnomon.connect(NOWHERE):
            raise error

    with pytest.raises(type(error)) as caught:
        trio.run(main)
    assert caught.value is error


def test_an_exception_of_the_block_is_raised_unchanged_while_the_client_consumes() -> None:
    async def read_and_fail(broker: EmbeddedBroker) -> None:
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            assert await values(consumer, 3) == [0, 1, 2]
            raise KeyError("x")

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        with pytest.raises(KeyError):
            await read_and_fail(broker)

    simulate_broker(scenario)


def test_the_cancellation_of_the_task_leaves_the_block_during_a_call_as_any_other_block() -> None:
    async def main() -> None:
        with trio.move_on_after(0.05) as scope:
            async with gnomon.connect(NOWHERE) as client:
                await client.subscribe("orders", "billing")
        assert scope.cancelled_caught

    trio.run(main)


def test_a_bug_of_the_client_is_not_hidden_by_an_exception_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: AckSender) -> NoReturn:
        raise AssertionError("an invariant is broken")

    async def main() -> None:
        async with gnomon.connect(NOWHERE):
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError("x")

    monkeypatch.setattr(AckSender, "run", broken)
    with pytest.raises(ExceptionGroup) as caught:
        trio.run(main)
    assert caught.value.subgroup(AssertionError) is not None
    assert caught.value.subgroup(KeyError) is not None
