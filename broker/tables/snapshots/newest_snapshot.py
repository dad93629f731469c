"""The newest snapshot of one partition's table, as far as this broker knows."""

from __future__ import annotations

from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.log.entry import Offset
from gnomon.log.tables.snapshot_form import SnapshotDamaged, SnapshotRecord
from gnomon.runtime.logs import Logger


class NewestSnapshot:
    """The record of the snapshot, and whether it is of use."""

    def __init__(self, ledgers: SnapshotLedgers, logger: Logger) -> None:
        """No snapshot is known."""
        self.ledgers = ledgers
        self._logger = logger
        self.record: SnapshotRecord | None = None
        self.is_rejected = False
        """Whether there is a snapshot that is not used: any other one may take its place."""

    @property
    def kept_from(self) -> Offset:
        """The records from this offset on are in no snapshot."""
        return Offset(0) if self.record is None else self.record.end

    async def load(self) -> SnapshotRecord | None:
        """Reads the record; None without a snapshot of use.

        Raises:
            MetadataError: it cannot be read.
        """
        try:
            self.record = await self.ledgers.load()
        except SnapshotDamaged as error:
            self.reject(str(error))
        return self.record

    def reject(self, reason: str) -> None:
        """The snapshot is damaged, or not one of this log."""
        self.record, self.is_rejected = None, True
        advice = "the table is restored from its store or its log, if one of them has everything"
        self._logger.error("table_snapshot_rejected", reason=reason, next=advice)

    def taken(self, record: SnapshotRecord) -> None:
        """A newer snapshot was taken."""
        self.record, self.is_rejected = record, False
