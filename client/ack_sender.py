"""Sends acknowledgements and permits to brokers, gathered for a moment over all consumers of a client.

A part is one consumer's share of one partition; it is attached while a broker delivers records to it.

1. An acknowledgement is sent within SEND_SECONDS if its part is attached. Otherwise it is sent after the part is
   attached again, unless the subscription was reset meanwhile (another cursor epoch).
2. If the part is attached, `ack_up_to` and `nack` are sent at once, after all its acknowledgements that were made
   before them. If the part is not attached, an `ack_up_to` waits as an acknowledgement does; a `nack` is dropped,
   because the broker delivers those records again anyway.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.part import Part
from gnomon.client.protocol import GROUPS_MAX
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock

SEND_SECONDS = 0.01


class AckSender:
    """The acknowledgements and permits of one client; the client runs it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owing: dict[Part, None] = {}
        self._acking: dict[Part, None] = {}
        self._gathered = Signal()

    def permits_due(self, part: Part) -> None:
        """Sends a part's permits (`Part.owed`) soon."""
        self._owing[part] = None
        self._gathered.set()

    def acks_due(self, part: Part) -> None:
        """Sends a part's acknowledgements (`Part.acked`) soon."""
        self._acking[part] = None
        self._gathered.set()

    def ack_up_to(self, part: Part, end: int) -> None:
        """Acknowledges all records below `end`."""
        self.flush()
        if part.connection is not None:
            part.connection.tell("ack_up_to", [[end, pack("<I", part.number)]])
        else:
            part.acked += (0, end)  # sent when the part is attached

    def nack(self, part: Part, first: int, end: int, delay_seconds: float) -> None:
        """Asks the broker to deliver records again; a part that is not attached gets them again anyway."""
        self.flush()
        if part.connection is not None:
            part.connection.tell("nack", [[first, end, round(delay_seconds * 1000), pack("<I", part.number)]])

    def forget(self, part: Part) -> None:
        """Sends nothing more for a part."""
        self._owing.pop(part, None)
        self._acking.pop(part, None)

    async def run(self) -> None:
        """Sends what was gathered, until cancelled."""
        while True:
            await self._gathered.wait()
            await self._clock.sleep(SEND_SECONDS)
            self._gathered.clear()
            self.flush()

    def flush(self) -> None:
        """Sends what was gathered, in one frame of each kind to each broker."""
        acks: dict[BrokerConnection[Part], dict[tuple[int, int], list[int]]] = {}
        for part in self._acking:
            connection = part.connection
            if connection is None:
                continue  # sent when the part is attached
            runs, acked = acks.setdefault(connection, {}), part.acked
            for at in range(0, len(acked), 2):
                runs.setdefault((acked[at], acked[at + 1]), []).append(part.number)
            part.acked = []
        self._acking.clear()
        flows: dict[BrokerConnection[Part], dict[int, list[int]]] = {}
        for part in self._owing:
            if part.connection is not None and part.owed:
                flows.setdefault(part.connection, {}).setdefault(part.owed, []).append(part.number)
                part.owed = 0
        self._owing.clear()
        for connection, runs in acks.items():
            _send(connection, "ack", [[first, end, _packed(numbers)] for (first, end), numbers in runs.items()])
        for connection, permits in flows.items():
            _send(connection, "flow", [[count, _packed(numbers)] for count, numbers in permits.items()])


def _send(connection: BrokerConnection[Part], method: str, groups: list[list[Any]]) -> None:
    for at in range(0, len(groups), GROUPS_MAX):
        connection.tell(method, groups[at : at + GROUPS_MAX])


def _packed(numbers: list[int]) -> bytes:
    return pack(f"<{len(numbers)}I", *numbers)
