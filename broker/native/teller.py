"""What a native client tells its brokers: acknowledgements and permits, gathered over all consumers."""

from __future__ import annotations

from struct import pack
from typing import Any

import trio

from gnomon.broker.native.arguments import GROUPS_MAX
from gnomon.broker.native.consumer import Part
from gnomon.broker.native.link import Link
from gnomon.runtime.world import Clock

TELL_SECONDS = 0.01
"""For so long is gathered."""


class Teller:
    """Made and run by the client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owing: dict[Part, None] = {}
        self._acking: dict[Part, None] = {}
        self._to_tell = trio.Event()

    def owes(self, part: Part) -> None:
        """A part has permits for its broker."""
        self._owing[part] = None
        self._to_tell.set()

    def has_acked(self, part: Part) -> None:
        """A part has acknowledgements for its broker."""
        self._acking[part] = None
        self._to_tell.set()

    def ack_up_to(self, part: Part, end: int) -> None:
        """Tells a broker that everything below `end` is acknowledged."""
        self.tell()
        if part.link is not None:
            part.link.tell("ack_up_to", [[end, pack("<I", part.number)]])
        else:
            part.acked += (0, end)  # it is told when the part is attached

    def nack(self, part: Part, first: int, end: int, delay_seconds: float) -> None:
        """Tells a broker to give records again; where none is known that happens anyway."""
        self.tell()
        if part.link is not None:
            part.link.tell("nack", [[first, end, round(delay_seconds * 1000), pack("<I", part.number)]])

    def forget(self, part: Part) -> None:
        """There is nothing to tell of a part any more."""
        self._owing.pop(part, None)
        self._acking.pop(part, None)

    async def run(self) -> None:
        """Tells what was gathered, until cancelled."""
        while True:
            await self._to_tell.wait()
            await self._clock.sleep(TELL_SECONDS)
            self._to_tell = trio.Event()  # by nobody else: this task would wait for the one of before
            self.tell()

    def tell(self) -> None:
        """Sends what was gathered, a frame of each kind to each broker."""
        acks: dict[Link, dict[tuple[int, int], list[int]]] = {}
        for part in self._acking:
            link = part.link
            if link is None:
                continue  # it is told when it is attached
            runs, acked = acks.setdefault(link, {}), part.acked
            for at in range(0, len(acked), 2):
                runs.setdefault((acked[at], acked[at + 1]), []).append(part.number)
            part.acked = []
        self._acking.clear()
        flows: dict[Link, dict[int, list[int]]] = {}
        for part in self._owing:
            if part.link is not None and part.owed:
                flows.setdefault(part.link, {}).setdefault(part.owed, []).append(part.number)
                part.owed = 0
        self._owing.clear()
        for link, runs in acks.items():
            _tell(link, "ack", [[first, end, _packed(numbers)] for (first, end), numbers in runs.items()])
        for link, permits in flows.items():
            _tell(link, "flow", [[count, _packed(numbers)] for count, numbers in permits.items()])


def _tell(link: Link, what: str, groups: list[list[Any]]) -> None:
    for at in range(0, len(groups), GROUPS_MAX):
        link.tell(what, groups[at : at + GROUPS_MAX])


def _packed(numbers: list[int]) -> bytes:
    return pack(f"<{len(numbers)}I", *numbers)
