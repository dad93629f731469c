"""A log whose batches are kept as a ledger would store them, for the tests of `partition.log`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.producers import Duplicate
from gnomon.log.entry import HEADER_BYTES, EntryKind, LeaderEpoch, Offset, unpack_entry, unpack_header
from gnomon.wire.kafka.records import Record, build_batch

NOW = 1_700_000_000_000
HOUR = 3_600_000


def batch_of(count: int = 1, at: int = NOW, *, producer: int = -1, epoch: int = 0, sequence: int = 0) -> memoryview:
    records = [Record(offset_delta=number, key=None, value=b"v" * 20) for number in range(count)]
    idempotent = {} if producer < 0 else {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return memoryview(build_batch(records, base_timestamp=at, **idempotent))


def new_log(**settings: Any) -> PartitionLog:
    return PartitionLog(LeaderEpoch(3), Offset(0), Offset(0), PartitionSettings(**settings))


class Ledger:
    """Entries as they would be stored."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.entries: list[bytes] = []

    def append(self, batch: memoryview, now_ms: int = NOW) -> Any:
        if self.log.snapshot_due():
            self.entries.append(b"".join(self.log.snapshot(len(self.entries))))
        verdict = self.log.append(batch, now_ms, len(self.entries))
        if not isinstance(verdict, Duplicate):
            self.entries.append(b"".join(verdict[0]))
        return verdict

    def snapshots(self) -> Iterator[bytes]:
        for payload in self.entries:
            if unpack_header(memoryview(payload)).kind == EntryKind.PRODUCERS:
                yield payload[HEADER_BYTES:]

    def reopened(self, now_ms: int = NOW, payload_bytes: int | None = None) -> PartitionLog:
        """Opens a log from its entries, as `chain` does; `payload_bytes` replaces the sum of their sizes."""
        log = PartitionLog(LeaderEpoch(4), Offset(0), Offset(0), self.log.settings)
        header = unpack_header(memoryview(self.entries[-1]))
        for payload in self.entries[header.replay_from :]:
            log.replay(*unpack_entry(memoryview(payload)), now_ms)
        if payload_bytes is None:
            payload_bytes = sum(map(len, self.entries))
        log.restore(header, len(self.entries) - 1, payload_bytes, NOW, now_ms)
        return log
