"""The shadows' side of replication, as methods of the native service: `replicate` and `told`; and `replication`, stats.

A source's broker opens the stream `replicate`, and tells frames beside it. The stream's items say up to which frame
all were taken, and what of them was not: once in ANSWER_SECONDS, or sooner where much was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from gnomon.broker.native.errors import InvalidCall, NoSuchTopic
from gnomon.broker.shadow.hearing import Answer, NotTold, Why, hear, unpacked
from gnomon.broker.shadow.window import FRAMES_MAX, WINDOW_BYTES
from gnomon.runtime.rpc_call import Call, Method

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

ANSWER_SECONDS = 0.05


class _Teller:
    """A source's broker, on one connection."""

    def __init__(self, stream: Call) -> None:
        self.stream = stream
        self.frame = self.answered = 0
        self.bytes = 0
        """Told since it was answered."""
        self.answers: dict[tuple[bytes, int], Answer] = {}
        self.due = False


class Listening:
    """Hears what the brokers of sources tell one that leads shadows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tellers: dict[object, _Teller] = {}

    def methods(self) -> Mapping[str, Method]:
        """What the native service serves of it."""
        return {"replicate": self._replicate, "told": self._told, "replication": self._replication}

    def _replication(self, call: Call) -> None:
        """The stats of all shadows and partitions of a topic that this broker tells."""
        if len(call.args) != 1 or type(call.args[0]) is not str:
            raise InvalidCall("arguments are str")
        broker = self._broker
        topic = broker.image.get(call.args[0])
        if topic is None:
            raise NoSuchTopic(f"topic '{call.args[0]}' does not exist")
        rows = []
        for shadow in broker.image.shadows_of(topic):
            for index in range(shadow.partitions):
                stats = broker.replication.stats(shadow, index)
                if stats is not None:
                    rows.append({"shadow": shadow.name, "partition": index, **asdict(stats)})
        call.reply(rows)

    def _replicate(self, call: Call) -> None:
        if not call.streams or call.args:
            raise InvalidCall("replicate is a stream without arguments: open it")
        if call.connection in self._tellers:
            raise InvalidCall("the connection has a stream of answers already")
        teller = self._tellers[call.connection] = _Teller(call)

        def gone() -> None:
            del self._tellers[call.connection]

        call.cancelled = gone
        self._answer(teller)

    def _told(self, call: Call) -> None:
        teller = self._tellers.get(call.connection)
        if teller is None:
            raise InvalidCall("open the stream of answers (replicate) first")
        try:
            self._take(teller, call)
        except NotTold as error:
            del self._tellers[call.connection]
            teller.stream.cancelled = None
            teller.stream.fail(InvalidCall(f"what was told makes no sense: {error}"))
            return
        teller.bytes += call.size
        if teller.bytes > WINDOW_BYTES // 4 or teller.frame - teller.answered > FRAMES_MAX // 4:
            self._answer(teller)
        elif not teller.due:
            teller.due = True
            at = self._broker.world.clock.monotonic() + ANSWER_SECONDS
            self._broker.timers.call_at(at, lambda: self._answer(teller))

    def _take(self, teller: _Teller, call: Call) -> None:
        if len(call.args) != 2 or type(call.args[0]) is not int or type(call.args[1]) is not list:
            raise NotTold("a frame is a number and a list")
        frame, items = call.args
        for item in items:
            shadows, index, told = unpacked(item)
            for shadow in shadows:
                before = teller.answers.get((shadow, index))
                if before is not None and before.why is Why.IDLE:
                    del teller.answers[shadow, index]
            for answer in hear(self._broker, shadows, index, told):
                before = teller.answers.get((answer.shadow, answer.partition))
                if before is None or before.why is not Why.MOVED:
                    teller.answers[answer.shadow, answer.partition] = answer
        teller.frame = frame

    @staticmethod
    def _answer(teller: _Teller) -> None:
        teller.due = False
        answers, teller.answers = [answer.packed() for answer in teller.answers.values()], {}
        teller.answered, teller.bytes = teller.frame, 0
        teller.stream.item([teller.frame, answers])
