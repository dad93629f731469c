"""A fault of storms over ledgers: the disk of a stopped bookie is replaced by an older copy of itself.

    copies = OlderCopies(cluster, ack_quorum=2, of=[bookie], share=0.5)
    simulation.start_soon(copies.rage, 15.0)
    copies.calm()

1. At most ack quorum - 1 bookies get older copies: each acknowledged entry has been on another bookie as well.
2. A copy is put back only where the bookie can notice it: the store has begun a run since, and the metadata has
   answered that it knows (`bookie.storage.age`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import lmdb

from gnomon.bookie.ids import BookieId
from gnomon.bookie.node import FOLDER
from gnomon.bookie.registration import AGES
from gnomon.bookie.storage.age import AGE_KEY
from gnomon.bookie.storage.entry_store import STATES
from gnomon.metadata import node as metadata_node
from gnomon.metadata.records import KEYS, decode_key_value
from gnomon.metadata.sealed import unseal
from gnomon.testing.storms.ledgers.ledger_cluster import DATA, LedgerCluster

METADATA_PATH = DATA / metadata_node.FOLDER
_NUMBER = struct.Struct(">Q")


class OlderCopies:
    """Takes copies of bookies' disks, and puts them back later."""

    COUNTER = "fault/older copy"

    def __init__(self, cluster: LedgerCluster, ack_quorum: int, of: Sequence[BookieId], share: float) -> None:
        """Args:
        of: bookies that are treated, if the ack quorum allows it, before others are.
        share: of seeds with this fault, among those whose ledgers have several copies.
        """
        self._cluster = cluster
        self._simulation = cluster.simulation
        self.random = self._simulation.random("older copies")
        others = [name for name in cluster.names if name not in of]
        self.random.shuffle(others)
        self._names = [*of, *others][: ack_quorum - 1]
        self._images: dict[tuple[BookieId, Path], bytes] = {}
        self._mean_seconds = self.random.choice([0.4, 1.0, 3.0])
        self._raging = bool(self._names) and self.random.random() < share

    async def rage(self, seconds: float) -> None:
        """Treats bookies for `seconds` or until `calm`."""
        end = self._simulation.clock.monotonic() + seconds
        while self._raging:
            await self._simulation.sleep(self.random.expovariate(1 / self._mean_seconds))
            if self._raging and self._simulation.clock.monotonic() < end:
                self._treat(self.random.choice(self._names))

    def calm(self) -> None:
        """Replaces no more disks."""
        self._raging = False

    def _treat(self, name: BookieId) -> None:
        """Stops a bookie, and copies its disk or puts a copy back. The storm starts it again."""
        machine, path = self._cluster.bookies[name], self._cluster.data(name) / FOLDER
        machine.kill()
        file = machine.disk.real(path) / "data.mdb"
        if not file.exists():
            return
        image = self._images.get((name, path))
        if image is None:
            if _age(file):
                self._images[name, path] = machine.disk.image(path)
        elif self._age_known(name, file) > self._age_of(image, file):
            machine.disk.put_back(path, image)
            self._simulation.coverage.count(self.COUNTER)
            if self.random.random() < 0.3:
                del self._images[name, path]

    def _age_known(self, name: BookieId, file: Path) -> int:
        """The age that the metadata has confirmed to the bookie; 0 if it knows none or does not run."""
        environment = self._cluster.metadata.disk.environments.get(METADATA_PATH)
        if environment is None:
            return 0
        key = (AGES + name).encode()
        with environment.read() as transaction:
            stored = transaction.get(key, db=environment.databases[KEYS])
            if stored is None:
                return 0
            known = decode_key_value(key, unseal(KEYS, key, stored))
        return int(_NUMBER.unpack(known.value)[0]) if _number(file, b"seen") >= known.mod_revision else 0

    @staticmethod
    def _age_of(image: bytes, file: Path) -> int:
        beside = file.with_suffix(".image")
        beside.write_bytes(image)
        try:
            return _age(beside)
        finally:
            beside.unlink()


def _age(file: Path) -> int:
    """The age of the store in a file; 0 if it has none yet."""
    return _number(file, AGE_KEY)


def _number(file: Path, key: bytes) -> int:
    with lmdb.open(str(file), subdir=False, readonly=True, lock=False, max_dbs=4) as environment:
        states = environment.open_db(STATES.encode(), create=False)
        with environment.begin(db=states) as transaction:
            found = transaction.get(key)
            return 0 if found is None else int(_NUMBER.unpack(found)[0])
