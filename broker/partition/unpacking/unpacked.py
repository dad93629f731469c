"""Unpacks one long batch in a thread: for the codec of its topic, for terms, and for the partition's view. Pure."""

from __future__ import annotations

from typing import Any

from gnomon.broker.partition.conditions.marks import BatchMarks, marks_of
from gnomon.broker.partition.log import PartitionSettings
from gnomon.broker.partition.log_view import LogView
from gnomon.broker.partition.unpacking.recoding import recoded
from gnomon.wire.kafka.batch import parse_batch


def unpacked(
    settings: PartitionSettings, view: LogView | None, batch: memoryview, bytes_max: int
) -> tuple[memoryview, BatchMarks | None, Any]:
    """The batch in the codec of the topic, the terms in its records if they may have some, and its effect on the view.

    Raises:
        UnpackedTooLarge: its records decompress to more than `bytes_max`.
        BatchRejected: as `recoded`, `marks_of` and `LogView.changes_in_thread`.
    """
    header = parse_batch(batch)
    marks = marks_of(batch, header, bytes_max) if settings.conditional else None
    changes = None if view is None else view.changes_in_thread(batch, header, bytes_max)
    if settings.codec is not None and header.compression != settings.codec:
        batch = recoded(batch, settings.codec, settings.batch_bytes_max, bytes_max)
    return batch, marks, changes
