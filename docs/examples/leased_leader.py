"""Leader election by a key that lives as long as its leader renews it.

    gnomon kv create election
    gnomon topic create work --partitions 1 --set gnomon.conditional.write=true
    python leased_leader.py 127.0.0.1:6650 election work one

A candidate creates the key with a time to live, and renews it. The others watch the key, and create it once it is gone.

A broker's clock counts the time to live, and never deletes the key early. But a leader that was paused does not know
that it was replaced: for a while two processes believe that they lead. So all that a leader writes is guarded by its
term, the revision that created the key, which is higher for each leader. In the topic it is the transaction id of each
record, which never falls. In the table of the election a transaction compares it.
"""

from __future__ import annotations

import itertools
import sys
import time

import gnomon

KEY = b"leader"
TTL_SECONDS = 10.0


class Deposed(Exception):
    """Another process leads."""


class LeasedLeader:
    """One term of leadership."""

    def __init__(
        self, client: gnomon.BlockingClient, election: str, topic: str, name: str, ttl_seconds: float = TTL_SECONDS
    ) -> None:
        """Waits until this process leads; then no leader before it can write.

        Raises:
            Deposed: another process leads already.
        """
        self._client = client
        self._table = client.table(election)
        self._topic = topic
        self._name = name.encode()
        self.ttl_seconds = ttl_seconds
        while True:
            try:
                self._revision = self._table.put(KEY, self._name, ttl_seconds=ttl_seconds, revision=-1)
                break
            except gnomon.CompareFailed as refused:
                if refused.current is not None:
                    self._wait(refused.current.revision)
        self.term = self._revision
        self.write(b"begins")

    def _wait(self, revision: int) -> None:
        """Returns once the key that somebody has put at this revision is deleted."""
        for event in self._table.watch(KEY, revision=revision + 1):
            if event.key == KEY and event.value is None:
                return

    def renew(self) -> None:
        """Leads on for the time to live; to be called well before it is over.

        Raises:
            Deposed: another process leads, or nobody does.
        """
        try:
            self._revision = self._table.put(KEY, self._name, ttl_seconds=self.ttl_seconds, revision=self._revision)
        except gnomon.CompareFailed as error:
            raise Deposed(f"the term {self.term} of {self._name.decode()} is over") from error

    def write(self, value: bytes) -> gnomon.SN:
        """Writes a record, unless a later leader has begun.

        Raises:
            Deposed: it has; nothing is written.
        """
        try:
            return self._client.write(self._topic, value, transaction_id=self.term)
        except gnomon.TransactionOutOfOrder as error:
            raise Deposed(f"a leader after {self._name.decode()} has begun") from error

    def put(self, key: bytes, value: bytes) -> None:
        """Puts a value into the table of the election, as long as this process leads.

        Raises:
            Deposed: another process leads, or nobody does; nothing is written.
        """
        leads = self._table.create_revision(KEY) == self.term
        if not self._table.txn(compare=[leads], then=[gnomon.PutKey(key, value)]).succeeded:
            raise Deposed(f"the term {self.term} of {self._name.decode()} is over")


def lead(address: str, election: str, topic: str, name: str, ttl_seconds: float) -> None:
    """Leads whenever it is possible: writes a record with each renewal."""
    with gnomon.connect_blocking(address) as client:
        while True:
            try:
                leader = LeasedLeader(client, election, topic, name, ttl_seconds)
                print(name, "leads in term", leader.term, flush=True)
                for number in itertools.count():
                    leader.renew()
                    leader.write(b"%d of %s" % (number, name.encode()))
                    time.sleep(ttl_seconds / 3)
            except Deposed as error:
                print(error, flush=True)


if __name__ == "__main__":
    lead(*sys.argv[1:5], float(sys.argv[5]) if len(sys.argv) > 5 else TTL_SECONDS)
