"""The ready replies of a turn of the event loop: at its end, all replies of a connection leave in one system call."""

from __future__ import annotations

from gnomon.broker.kafka.connections.exchange import ExchangeConnection
from gnomon.broker.partition.turns import Turns


class Replies:
    """The connections of one broker that have replies to send."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._unflushed: dict[ExchangeConnection, None] = {}
        self.flush_later = self._flush_this_turn if turns.by_network else self._flush_later
        """Has the replies of a connection sent at the end of this turn."""
        turns.at_end(self._flush)

    def forget(self, connection: ExchangeConnection) -> None:
        """The connection is gone."""
        self._unflushed.pop(connection, None)

    def _flush_later(self, connection: ExchangeConnection) -> None:
        self._unflushed[connection] = None

    def _flush_this_turn(self, connection: ExchangeConnection) -> None:
        """Like `_flush_later`, if no store ends this turn: the network does."""
        self._unflushed[connection] = None
        self._turns.began()

    def _flush(self) -> None:
        while self._unflushed:
            connection, _ = self._unflushed.popitem()
            connection.flush()
