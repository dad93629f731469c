"""The expiry of the keys of one partition's table: the leader deletes a key after its time to live, by a record.

1. A key is deleted by the clock of the leader, in its turn in the log, as by any transaction (`ExpireKey`): it may have
   been put again until then, or the clock may have been set back.
2. While the log takes no appends it is opened again, for otherwise nobody may do so before the keys expire.
3. The clock is read every EXPIRY_SECONDS_MAX while a key will expire, as it may be set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.unpacking.batch_client import BrokerItself
from gnomon.broker.tables.engines.table_engine import TableEngine
from gnomon.broker.tables.transaction import ExpireKey, Transaction
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.errors import ErrorCode

EXPIRIES_AT_ONCE: Final = 50
"""Keys that are deleted in one turn: their entries are seldom in memory."""
EXPIRY_SECONDS_MAX: Final = 0.5
EXPIRY_AGAIN_SECONDS: Final = 0.25
"""The pause after no expired key could be deleted."""


class TableExpiry:
    """Deletes the expired keys of one table while it is live."""

    def __init__(
        self,
        partition: Partition,
        engine: Callable[[], TableEngine | None],
        load: Callable[[], None],
        clock: Clock,
        timers: Timers,
    ) -> None:
        """No key is known to expire.

        Args:
            engine: the entries of the live table; None while it is not live.
            load: opens the log again and loads the table.
        """
        self._partition = partition
        self._engine = engine
        self._load = load
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._expiring = False
        self._over = False

    def look(self) -> None:
        """Deletes expired keys in time, now that the entries may have changed."""
        engine = self._engine()
        expiry_ms = None if engine is None or self._expiring else engine.next_expiry_ms
        if expiry_ms is None:
            return
        seconds = min(max(0, expiry_ms - self._clock.wall_ms()) / 1_000, EXPIRY_SECONDS_MAX)
        deadline = self._clock.monotonic() + seconds
        timer = self._timer
        if timer is not None and timer.callback is not None:
            if timer.deadline <= deadline:
                return
            timer.cancel()
        self._timer = self._timers.call_at(deadline, self._expire)

    def end(self) -> None:
        """The table ends."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        """Deletes the keys whose time to live is over."""
        engine = self._engine()
        keys = [] if engine is None else engine.expiring(self._clock.wall_ms(), EXPIRIES_AT_ONCE)
        if engine is None or not keys:
            self._expire_more()
            return
        self._expiring = True
        transaction = Transaction((), list(map(ExpireKey, keys)))
        done = _Expiry(partial(self._expired, transaction))
        self._partition.append(memoryview(b""), done, None, Terms(operation=transaction))

    def _expired(self, transaction: Transaction, outcome: Produced) -> None:
        """Goes on with the next keys; after a pause if none was deleted: that failed, or none is over any more."""
        deleted = outcome.error == ErrorCode.NONE and any(each >= 0 for each in transaction.answers or ())
        pause_seconds = 0.0 if deleted else EXPIRY_AGAIN_SECONDS
        self._timer = self._timers.call_at(self._clock.monotonic() + pause_seconds, self._expire_more)

    def _expire_more(self) -> None:
        is_live = self._engine() is not None
        self._expiring = not is_live and not self._over
        if is_live:
            self.look()
        elif not self._over:  # an append has failed
            self._load()
            self._timer = self._timers.call_at(self._clock.monotonic() + EXPIRY_AGAIN_SECONDS, self._expire_more)


class _Expiry(BrokerItself):
    """The callback of an append that deletes expired keys."""

    def __init__(self, done: Callable[[Produced], None]) -> None:
        self._done = done

    def client_of(self, slot: object) -> BrokerItself:
        """See `AppendCallback.client_of`."""
        return self

    def appended(self, slot: object, outcome: Produced) -> None:
        """See `AppendCallback.appended`."""
        self._done(outcome)
