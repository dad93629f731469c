"""A replicated state machine: accounts, whose transfers are the records of a topic.

Every process applies the same records in the same order, so all of them have the same accounts. A process proposes a
transfer on the condition that it has seen the whole log: what it has checked still holds when the transfer is written.
Of two that race, one is refused, applies the record of the other, and checks again.
"""

from __future__ import annotations

import json
from pathlib import Path

import gnomon


class Refused(Exception):
    """The transfer is not possible."""


class ReplicatedAccounts:
    """The accounts as of the last applied record; `snapshot` keeps them for the next start."""

    def __init__(self, client: gnomon.BlockingClient, topic: str, name: str, snapshot: Path) -> None:
        """Begins with the snapshot, if there is one.

        Args:
            name: of the subscription by which this process reads the log; each process has its own.
        """
        self._client = client
        self._topic = topic
        self._snapshot = snapshot
        self.balances: dict[str, int] = {}
        self.applied = -1
        """The sequence id of the last applied record."""
        if snapshot.exists():
            self.applied, self.balances = json.loads(snapshot.read_text())
        self._consumer = client.subscribe(topic, name, initial_position="earliest")
        self._consumer.seek_to_offset(0, self.applied + 1)

    def catch_up(self) -> None:
        """Applies all records that the log has now."""
        end = self._client.end(self._topic).sn.sequence_id
        while self.applied < (-1 if end is None else end):
            message = self._consumer.receive()
            assert message is not None, "the log has a record after the last applied one"
            source, target, amount = json.loads(message.value or b"")
            self.balances[source] = self.balances.get(source, 0) - amount
            self.balances[target] = self.balances.get(target, 0) + amount
            self.applied = message.offset

    def transfer(self, source: str, target: str, amount: int) -> None:
        """Moves an amount, if the source has it; `bank` has any amount.

        Raises:
            Refused: the source has too little.
        """
        record = json.dumps([source, target, amount]).encode()
        while True:
            self.catch_up()
            if source != "bank" and self.balances.get(source, 0) < amount:
                raise Refused(f"{source} has {self.balances.get(source, 0)}, not {amount}")
            try:
                self._client.write(self._topic, record, expected=gnomon.SN(sequence_id=self.applied))
                return
            except gnomon.CasWriteException:
                continue  # somebody else was faster: look again

    def save(self) -> None:
        """Keeps the accounts for the next start, which reads only later records."""
        new = self._snapshot.with_suffix(".new")
        new.write_text(json.dumps([self.applied, self.balances]))
        new.replace(self._snapshot)
