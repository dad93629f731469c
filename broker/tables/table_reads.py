"""The reads of a table at its leader, and the other calls that wait until the table is live.

1. Nothing is decided or read before the table is live. Calls wait for that for at most WAIT_SECONDS, then they are
   refused with the state of the loading, and can be repeated. The calls of all tables of the broker share a part of
   each turn (`paced_calls`).
2. A read is answered after the metadata service has confirmed that no other broker claimed the log since the read
   arrived. So it sees every write that was acknowledged before. Reads that arrive together share a confirmation.
   While the log takes no appends, reads go on with what is durable.
3. A read that arrives while a long batch is applied in several turns waits for the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from gnomon.broker.partition.partition import Partition
from gnomon.broker.tables.paced_calls import PacedCalls
from gnomon.broker.tables.stored.store_forms import RowDamaged
from gnomon.broker.tables.table_state import TableState
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock

WAIT_SECONDS: Final = 1.0
NOT_CONFIRMED: Final = "this broker does not know whether it still leads the partition"

Look: TypeAlias = Callable[[TableState], None]
Refuse: TypeAlias = Callable[[str], None]
Ready: TypeAlias = Callable[[str | None], None]
"""Called with None once the table is live, or with the reason why it is not."""


class TableToRead(Protocol):
    """The parts of a table that its reads need; `HostedTable` is one."""

    @property
    def state(self) -> TableState:
        """The state as far as it is applied."""

    @property
    def is_live(self) -> bool:
        """Whether the table has applied its log and follows the appends."""

    @property
    def is_used(self) -> bool:
        """Whether somebody uses the table, and its partition is led here."""

    def use(self) -> None:
        """The table is used from now on: it is loaded unless it is live."""

    def progress(self) -> str:
        """A text that says how far the loading is."""

    def discard(self, error: RowDamaged) -> None:
        """The stored table is damaged: it is loaded again."""


class TableReads:
    """The waiting calls of one table."""

    def __init__(
        self, partition: Partition, table: TableToRead, paced: PacedCalls, clock: Clock, timers: Timers
    ) -> None:
        """No call waits.

        Args:
            paced: runs the calls of all tables of the broker.
        """
        self._partition = partition
        self._table = table
        self._clock = clock
        self._timers = timers
        self._paced = paced
        self._waiting: list[Ready] = []
        """The calls that wait until the table is live."""
        self._looks: list[tuple[Look, Refuse]] = []
        """Confirmed reads that wait until a batch is applied as a whole."""

    @property
    def are_waiting(self) -> bool:
        """Whether calls wait until the table is live."""
        return bool(self._waiting)

    def when_live(self, ready: Ready) -> None:
        """Calls `ready` once the table is live, or is not within WAIT_SECONDS."""
        self._table.use()
        if self._table.is_live:
            self._paced.run_shared(self, partial(ready, None))
            return
        if not self._waiting:
            self._timers.call_at(self._clock.monotonic() + WAIT_SECONDS, self._end_waiting)
        self._waiting.append(ready)

    def _end_waiting(self) -> None:
        """Refuses the calls that have waited for WAIT_SECONDS, and those that came after them."""
        if self._waiting:
            self.loaded(self._table.progress())

    def loaded(self, reason: str | None) -> None:
        """The table is live, or is not because of `reason`: answers the calls that wait for it."""
        waiting, self._waiting = self._waiting, []
        for ready in waiting:
            self._paced.run(self, partial(ready, reason))

    def read(self, look: Look, refuse: Refuse, *, stale: bool = False) -> None:
        """Calls `look` with the state once that is as new as the call, or `refuse` with the reason why it is not.

        Args:
            stale: whether the state may be older, as that of a broker that was replaced.
        """
        ready = partial(self._read, look, refuse, stale)
        if not self._shows_all:
            self.when_live(ready)
            return
        self._table.use()  # opens the log again
        self._paced.run(self, partial(ready, None))

    @property
    def _shows_all(self) -> bool:
        """Whether the state has everything that is durable, as it has while the log takes no appends, too."""
        log, state = self._partition.log, self._table.state
        is_whole = log is not None and not state.is_behind and state.applied == log.high_watermark
        return self._table.is_live or is_whole

    def _read(self, look: Look, refuse: Refuse, stale: bool, reason: str | None) -> None:
        if reason is not None or self._partition.log is None:
            refuse(reason or self._table.progress())
        elif stale:
            if not self._partition.confirms_leadership:
                self._table.state.news_at = self._clock.monotonic()
            self._look(look, refuse)
        else:
            self._partition.confirm(partial(self._confirmed, look, refuse))

    def _confirmed(self, look: Look, refuse: Refuse, certain: bool) -> None:
        if certain and self._shows_all:
            self._table.state.news_at = self._clock.monotonic()
            self._look(look, refuse)
        else:
            refuse(NOT_CONFIRMED)

    def _look(self, look: Look, refuse: Refuse) -> None:
        """Has a read look at the state, in this turn or soon, once no batch is half applied."""
        self._paced.run(self, partial(self._look_now, look, refuse))

    def _look_now(self, look: Look, refuse: Refuse) -> None:
        if not self._table.is_used:
            refuse(NOT_CONFIRMED)
        elif self._table.state.is_behind:
            self._looks.append((look, refuse))
        else:
            try:
                look(self._table.state)
            except RowDamaged as error:
                self._table.discard(error)
                refuse(str(error))

    def applied(self) -> None:
        """No batch is half applied now, or the table has ended: the reads that wait for that go on."""
        looks, self._looks = self._looks, []
        for look, refuse in looks:
            self._look(look, refuse)
