"""The entry store against two dictionaries, driven by Hypothesis."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from store_calls import Answers, add, fence, read

from gnomon.bookie.errors import EntryAltered, Fenced, NoSuchEntry
from gnomon.bookie.ids import NO_ENTRY, LedgerId
from gnomon.bookie.storage.entry_store import EntryStore


class StoreMachine(RuleBasedStateMachine):
    """The store against two dictionaries: the committed entries and the promises, which a crash must not lose."""

    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="gnomon-store-"))
        self.model: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.promised: dict[int, int] = {}
        self.pending: list[tuple[int, int, int, bytes, Answers, bool]] = []
        self.environment: Any = None
        self.number = 0
        self._open()

    def _open(self) -> None:
        clock = _Clock()
        self.environment = _Environment(self.directory / "bookie", automatic=False)
        self.store = EntryStore(self.environment, clock)

    @rule(ledger=st.integers(1, 3), entry=st.integers(0, 5), session=st.integers(1, 4))
    def add(self, ledger: int, entry: int, session: int) -> None:
        self.number += 1
        payload = b"%d" % self.number
        accepted = session >= self.promised.get(ledger, 0)
        if accepted:
            self.promised[ledger] = session
        answers = add(self.store, entry, session, payload, LedgerId(ledger))
        self.pending.append((ledger, entry, session, payload, answers, accepted))

    @rule(ledger=st.integers(1, 3), session=st.integers(1, 4))
    def fence(self, ledger: int, session: int) -> None:
        accepted = session >= self.promised.get(ledger, 0)
        if accepted:
            self.promised[ledger] = session
        answers = fence(self.store, session, LedgerId(ledger))
        self.commit()
        result, error = answers[0]
        assert (error is None) == accepted
        if accepted:
            entries = [entry for at, entry in self.model if at == ledger]
            assert result is not None
            assert result.last_entry == max(entries, default=NO_ENTRY)

    @rule()
    def commit(self) -> None:
        self.environment.flush()
        for ledger, entry, session, payload, answers, accepted in self.pending:
            assert len(answers) == 1
            error = answers[0][1]
            assert isinstance(error, Fenced) != accepted
            if isinstance(error, EntryAltered):
                assert self.model[ledger, entry][0] == session
            elif accepted:
                self.model[ledger, entry] = (session, payload)
        self.pending.clear()

    @rule()
    def crash(self) -> None:
        self.environment.crash()
        durable: dict[int, int] = {}
        self._open()
        for ledger in self.promised:
            sessions = [self._promised_on_disk(ledger)]
            durable[ledger] = max(sessions)
            assert durable[ledger] >= max((s for (at, _), (s, _) in self.model.items() if at == ledger), default=0)
            assert durable[ledger] <= self.promised[ledger]
        self.promised = durable
        for _, _, _, _, answers, _ in self.pending:
            assert answers == []
        self.pending.clear()

    def _promised_on_disk(self, ledger: int) -> int:
        return self.store.ledgers._load(LedgerId(ledger)).promised

    @rule(minimum=st.integers(0, 4))
    def read_everything(self, minimum: int) -> None:
        for ledger in range(1, 4):
            for entry in range(6):
                session, payload = self.model.get((ledger, entry), (-1, b""))
                if session >= minimum:
                    assert read(self.store, entry, minimum, LedgerId(ledger)) == payload
                else:
                    with pytest.raises(NoSuchEntry):
                        read(self.store, entry, minimum, LedgerId(ledger))

    def teardown(self) -> None:
        if getattr(self, "environment", None) is not None:
            self.commit()
            self.read_everything(0)
            self.environment.environment.close()
            shutil.rmtree(self.directory)


_Clock: Any = None
_Environment: Any = None


@pytest.fixture(autouse=True)
def _tools_for_the_machine(clock: Any, make_environment: Any) -> None:
    global _Clock, _Environment
    _Clock, _Environment = type(clock), make_environment


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
