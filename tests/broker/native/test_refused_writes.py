"""Writes of native clients that no broker takes: each is refused with the mistake, and costs nobody else anything."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from drawn_arguments import changed
from native_calls import native, orders, rpc, values, writing

import gnomon
from gnomon.client.client import NativeClient
from gnomon.client.errors import ERRORS, InvalidCall, InvalidRecords, NoSuchTopic, NotTaken
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import EMPTY, SN
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.records import Record, build_batch

PREVIOUS = gnomon.PREVIOUS
INVALID: list[tuple[str, dict[str, Any]]] = [
    ("an SN without fields", {"expected": SN()}),
    ("expect an SN, a Dlsn or nothing", {"expected": 17}),
    ("expect an SN, a Dlsn or nothing", {"expected": (0, 0, 0)}),
    ("PREVIOUS is for the writes of one", {"expected": PREVIOUS}),
    ("a sequence id is a number from -1", {"expected": SN(sequence_id=1 << 63)}),
    ("a transaction id is a number from -1", {"expected": SN(transaction_id=-2)}),
    ("a DLSN is three numbers", {"expected": Dlsn(0, 0, -2)}),
    ("a partition is a number", {"partition": -1}),
    ("a partition is a number", {"partition": "0"}),
    ("are bytes or None, not str", {"key": "text"}),
    ("are bytes or None, not int", {"headers": [("name", 7)]}),
    ("names of headers are texts", {"headers": [(b"name", b"7")]}),
]


@pytest.mark.parametrize(("text", "options"), INVALID)
def test_an_invalid_argument_is_named_and_nothing_is_sent(text: str, options: dict[str, Any]) -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        with pytest.raises(InvalidCall, match=text):
            await client.write("orders", b"0", **options)
        assert (await client.end("orders")).sn == EMPTY

    writing(scenario)


def test_records_of_a_wrong_number_type_or_size_are_refused() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        for records in ([], [b""] * 20_001, [b"x" * (9 << 20)] * 2, ["text"]):
            with pytest.raises(InvalidCall):
                await client.write_batch("orders", records)  # type: ignore[arg-type]
        with pytest.raises(InvalidRecords, match=r"max\.message\.bytes allows 1048588"):
            await client.write("orders", b"x" * (2 << 20))
        async with client.writer("orders") as writer:
            with pytest.raises(InvalidCall, match="nothing was sent before"):
                writer.send(b"0", expected=PREVIOUS)
        assert (await client.end("orders")).sn == EMPTY

    writing(scenario)


def test_a_chain_does_not_go_on_behind_a_record_that_is_too_large() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        async with client.writer("orders") as writer:
            sent = [writer.send(b"x" * (2 << 20)), writer.send(b"y" * (300 << 10)), writer.send(b"z" * (300 << 10))]
            for pending in sent:
                with pytest.raises(InvalidRecords):
                    await pending.sn()
        assert (await client.end("orders")).sn == EMPTY

    writing(scenario)


def test_what_is_no_topic_for_writers_is_refused() -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        for call in (lambda: client.write("none", b"0"), lambda: client.end("none")):
            with pytest.raises(NoSuchTopic, match="none"):
                await call()
        with pytest.raises(NoSuchTopic, match="has 1 partitions, and none of 3"):
            await client.write("orders", b"0", partition=3)
        kafka = await broker.connect()
        await kafka.create_topic("copy", configs={"gnomon.shadow.source": "orders"})
        for call in (lambda: client.write("copy", b"0"), lambda: client.end("copy")):
            with pytest.raises(InvalidCall, match="shadow"):
                await call()

    writing(scenario)


BATCH = build_batch([Record(value=b"1")], base_timestamp=0)
ID: Any = object()
"""Replaced by the id of the topic."""
SENSELESS: list[tuple[list[Any], bytes]] = [
    ([], BATCH),
    (["orders"], BATCH),
    (["orders", ID], BATCH),
    (["orders", ID, 0], BATCH),
    (["orders", ID, 0, [], None, False], BATCH),
    (["orders", ID, 0, 7, None, False], BATCH),
    (["orders", ID, 0, [None, None, None], None, False], BATCH),
    (["orders", ID, 0, [[0, 0], None, None], None, False], BATCH),
    (["orders", ID, "0", None, None, False], BATCH),
    ([7, ID, 0, None, None, False], BATCH),
    (["orders", 7, 0, None, None, False], BATCH),
    (["orders", "7", 0, None, None, False], BATCH),
    (["orders", "x" * 1000, 0, None, None, False], BATCH),
    (["orders", ID, 0, None, None, False, None], BATCH),
    (["orders", ID, 0, None, b"", False], BATCH),
    (["orders", ID, 0, None, b"x" * 37, False], BATCH),
    (["orders", ID, 0, None, "token", False], BATCH),
    (["orders", ID, 0, None, None, 1], BATCH),
    (["orders", ID, 0, None, None, True], BATCH),
    (["orders", ID, -1, None, None, False], BATCH),
    (["orders", ID, 1 << 40, None, None, False], BATCH),
    (["x" * 2000, ID, 0, None, None, False], BATCH),
    (["none", ID, 0, None, None, False], BATCH),
    (["orders", ID, 0, None, None, False], b""),
    (["orders", ID, 0, None, None, False], b"\0" * 61),
    (["orders", ID, 0, None, None, False], BATCH[:-1]),
    (["orders", ID, 0, None, None, False], BATCH + b"\0"),
    (["orders", ID, 0, None, None, False], BATCH * 2),
    (["orders", ID, 0, None, None, False], build_batch([Record()], base_timestamp=0, transactional=True)),
    (["orders", ID, 0, None, None, False], build_batch([Record()], base_timestamp=0, control=True)),
]


@pytest.mark.parametrize(("args", "attachment"), SENSELESS)
def test_a_senseless_call_is_answered_with_an_error_and_costs_nobody_else_anything(
    args: list[Any], attachment: bytes
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with rpc(broker) as peer, native(broker) as client:
            topic_id, _ = await peer.call("lookup", "orders")
            given = [topic_id if arg is ID else arg for arg in args]
            with pytest.raises((InvalidCall, InvalidRecords, NoSuchTopic, NotTaken)):
                await peer.call("write", *given, attachment=attachment)
            assert (await client.write("orders", b"1", expected=SN(sequence_id=0))).sequence_id == 1
            consumer = await client.subscribe("orders", "audit", initial_position="earliest")
            assert await values(consumer, 2) == [0, 1]

    simulate_broker(scenario)


METHODS = {
    "write": ["orders", ID, 0, [[0, 0, 0], -1, 0], b"token", False],
    "fence": ["orders", 0, b"token", [None, None, 0], b"token"],
    "end": ["orders", 0],
    "producer_id": ["orders"],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", METHODS)
def test_any_arguments_are_answered_and_the_broker_goes_on(method: str, seed: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        draw = Random(f"{method}/{seed}")
        async with rpc(broker) as peer, native(broker) as client:
            topic_id, _ = await peer.call("lookup", "orders")
            for _ in range(250):
                args = [topic_id if arg is ID else arg for arg in changed(draw, METHODS[method])]
                attachment = bytearray(BATCH)
                if draw.random() < 0.3:
                    attachment[draw.randrange(len(BATCH))] ^= 1 << draw.randrange(8)
                with suppress(*ERRORS.classes, OverflowError):
                    await peer.call(method, *args, attachment=bytes(attachment) if method == "write" else b"")
            end = await client.end("orders")
            assert (await client.write("orders", b"1", expected=end.sn)).sequence_id == (end.sn.sequence_id or 0) + 1

    simulate_broker(scenario)


@pytest.mark.parametrize("token", [b"", b"x" * 37, "text", 7])
def test_a_token_of_another_form_is_refused(token: Any) -> None:
    async def scenario(broker: EmbeddedBroker, client: NativeClient) -> None:
        with pytest.raises(InvalidCall, match="token"):
            await client.write("orders", b"0", token=token)
        with pytest.raises(InvalidCall, match="token"):
            await client.fence("orders", 0, b"new", token=token)
        if token != b"":
            with pytest.raises(InvalidCall, match="token"):
                await client.fence("orders", 0, token)
        with pytest.raises(InvalidCall, match="token"):
            async with client.writer("orders", token=token):
                pass
        async with rpc(broker) as peer:
            for args in ([b"x" * 37, None, None], ["w", None, None], [b"w", [], None], [b"w", None, b""], [b"w", None]):
                with pytest.raises(InvalidCall):
                    await peer.call("fence", "orders", 0, *args)
        assert await client.end("orders") == gnomon.End(EMPTY, b"")

    writing(scenario)
