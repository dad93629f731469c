"""Measures the bytes that shadows add to the bookies."""

from __future__ import annotations

import time

from bench.fanout.fleet import fleet
from bench.fanout.scale import FanoutScale
from bench.fanout.subscriptions import PATIENCE_SECONDS
from bench.generator import GeneratorFailed
from bench.workspace import Workspace

SHADOWS = 4
MESSAGE_BYTES = 1 << 10
MESSAGES_PER_SECOND = 500
OPEN_SECONDS = 60.0
SETTLE_SECONDS = 1.0
FLUSHED_SECONDS = 2.5
"""Time for the last positions to be stored."""
SEGMENT_STORE = {"subscriptions.log_segment_based_subscriptions_store_enabled": "true"}


def measure(workspace: Workspace, scale: FanoutScale) -> dict[str, float]:
    """Keys and values in the bookies' stores after the same messages: without shadows, with shadows that are all read
    and acknowledged, and the same again with the positions in ledgers of their own."""
    messages = scale.stored_messages
    alone, _ = _stored(workspace, messages, 0, {})
    shared, _ = _stored(workspace, messages, SHADOWS, {})
    positions, deliveries = _stored(workspace, messages, SHADOWS, SEGMENT_STORE)
    return {
        "message_bytes": alone / messages,
        "shadow_bytes": (shared - alone) / SHADOWS / messages,
        "position_bytes": (positions - shared) / deliveries,
    }


def _stored(workspace: Workspace, messages: int, shadows: int, settings: dict[str, str]) -> tuple[int, int]:
    """Bytes on all bookies, and the number of acknowledged deliveries."""
    with fleet(workspace, shadows + 1, settings) as served:
        places = served.create("fan", shadows)
        load = {"records": 1, "value_bytes": MESSAGE_BYTES, "interval_seconds": 1 / MESSAGES_PER_SECOND, "held": True}
        readers = [(place.native, place.topic, 1) for place in places]
        task = {"connections": readers, "patience_seconds": PATIENCE_SECONDS}
        with served.pacer(places[0], **load, count=messages) as producer, served.child("subscribers", task) as reading:
            reading.answer(OPEN_SECONDS)
            producer.tell("go")
            time.sleep(messages / MESSAGES_PER_SECOND + SETTLE_SECONDS)
            sent = len(producer.ask("stop", OPEN_SECONDS)["waits"])
            found = reading.ask(sent * len(places), 2 * PATIENCE_SECONDS)
            time.sleep(FLUSHED_SECONDS)
        if sent != messages or found["deliveries"] != sent * len(places):
            raise GeneratorFailed(f"{sent} of {messages} messages, {found['deliveries']} deliveries")
    return served.stored_bytes(), found["deliveries"]
