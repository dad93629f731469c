"""Thresholds of the product, lowered per seed to values that the few hundred records of a seed reach.

Each seed draws its own mix: one where every request is a long one, one where each part of a snapshot has one record,
one where the metadata keeps hardly any history. Half of the thresholds keep the value of production.
"""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import NamedTuple

import pytest

from gnomon.bookie.ledgers import claim, copies, ledgers
from gnomon.bookie.storage import removal
from gnomon.broker import state_logs
from gnomon.broker.coordination import hosted_machine
from gnomon.broker.groups import expiry, group_shard
from gnomon.broker.in_use import partitions_in_use
from gnomon.broker.kafka import fetch, long_poll, produce
from gnomon.broker.kafka.connections import request_handling
from gnomon.broker.native.tables import table_methods
from gnomon.broker.partition import log, trim
from gnomon.broker.partition.unpacking import recoding
from gnomon.broker.replication import protocol, source_tail
from gnomon.broker.shadow import image
from gnomon.broker.shadow import partition as shadow_partition
from gnomon.broker.subscriptions import hosted_partition, stations
from gnomon.broker.subscriptions.positions import segment_store
from gnomon.broker.tables import (
    hosted_table,
    kept_batches,
    table_expiry,
    table_log,
    table_state,
)
from gnomon.broker.tables.snapshots import snapshot_ledgers, table_snapshots
from gnomon.broker.tables.stored import disk_engine
from gnomon.broker.tables.stored import removal as removal_of_tables
from gnomon.broker.tables.watches import table_watches, watched_batch
from gnomon.log import chains, log_reader
from gnomon.metadata import service, state
from gnomon.runtime.loop import paced, turn_share


class Threshold(NamedTuple):
    """A threshold, in the module that uses it, and its low values."""

    module: ModuleType
    name: str
    low: tuple[int, ...]


THRESHOLDS = tuple(
    Threshold(*each)
    for each in (
        (claim, "AHEAD_ENTRIES", (1, 4)),
        (copies, "BATCH_BYTES_MAX", (1, 300)),
        (copies, "TAIL_ENTRIES", (1, 3)),
        (ledgers, "READ_ENTRIES", (1, 3)),
        (removal, "CHUNK_ENTRIES", (1, 3)),
        (state_logs, "READ_BYTES", (1, 300)),
        (hosted_machine, "SNAPSHOT_BATCH_BYTES", (1, 200)),
        (hosted_machine, "APPEND_BATCH_BYTES", (1, 200)),
        (group_shard, "SNAPSHOT_PART_RECORDS", (1, 3)),
        (expiry, "OFFSETS_MAX", (1, 3)),
        (group_shard, "OFFSETS_MAX", (1, 3)),
        (group_shard, "GROUPS_EXAMINED_MAX", (1, 2)),
        (fetch, "ELEMENTS_AT_ONCE", (0, 2)),
        (long_poll, "PARTITIONS_PER_TURN", (1, 2)),
        (produce, "PARTITIONS_PER_TURN", (1, 2)),
        (request_handling, "ELEMENTS_AT_ONCE", (0, 2)),
        (log, "SNAPSHOT_BYTES_MIN", (500, 5_000)),
        (recoding, "AT_ONCE_BYTES_MAX", (0, 100)),
        (trim, "SEGMENTS_AT_ONCE", (1, 2)),
        (protocol, "FRAMES_MAX", (1, 3)),
        (source_tail, "FRESH_BYTES_MAX", (1, 500)),
        (image, "WAITING_MAX", (1, 4)),
        (shadow_partition, "TOGETHER_ENTRIES", (1, 3)),
        (hosted_partition, "ADDED_AT_ONCE", (1, 2)),
        (hosted_partition, "SENT_AWAY_AT_ONCE", (1, 2)),
        (stations, "READERS_AT_ONCE", (1, 2)),
        (segment_store, "APPENDS_MAX", (1, 3)),
        (chains, "PARTITIONS_PER_TURN", (1, 2)),
        (log_reader, "ENTRIES_PER_TURN", (1, 3)),
        (service, "PART_BYTES", (1, 200)),
        (state, "HISTORY_BYTES", (1_000, 20_000)),
        (claim, "LOOK_ENTRIES_MAX", (0, 3)),
        (fetch, "OPENINGS_AT_ONCE", (0, 1)),
        (produce, "WEIGHT_BYTES", (1, 100)),
        (partitions_in_use, "TASKS_PER_TURN", (1, 2)),
        (table_log, "READ_BYTES", (1, 300)),
        (table_state, "APPLIED_AT_ONCE", (1, 2)),
        (table_state, "LOOKED_UP_AT_ONCE", (1, 2)),
        (paced, "STEPS_PER_TURN", (1, 2)),
        (hosted_table, "RECORDS_AT_ONCE_MAX", (0, 1)),
        (table_log, "RECORDS_AT_ONCE_MAX", (0, 1)),
        (kept_batches, "KEPT_BYTES_MAX", (1, 1_000)),
        (table_expiry, "EXPIRIES_AT_ONCE", (1, 2)),
        (table_methods, "PARTS_AT_ONCE", (0, 1)),
        (table_log, "WATCHED_BYTES", (1, 300)),
        (table_snapshots, "PAGE_ENTRIES", (1, 2)),
        (table_snapshots, "PAGE_BYTES", (1, 300)),
        (snapshot_ledgers, "READ_PARTS", (1, 2)),
        (disk_engine, "EXPIRIES_AHEAD", (1, 2)),
        (disk_engine, "COUNTED_AT_ONCE", (1, 2)),
        (removal_of_tables, "REMOVED_AT_ONCE", (1, 2)),
        (table_watches, "WOKEN_AT_ONCE", (1, 2)),
        (table_watches, "UNSEEN_CHANGES_MAX", (1, 5)),
        (watched_batch, "LOOKUPS_AT_ONCE", (1, 2)),
        (table_methods, "SENT_AT_ONCE", (0, 1)),
        (table_watches, "KEPT_BYTES", (0, 1_000)),
        (turn_share, "SHARE_SECONDS", (-1,)),
    )
)


def lower_thresholds(stream: Random, patch: pytest.MonkeyPatch) -> None:
    """Draws each threshold: the value of production, or a low one."""
    for module, name, low in THRESHOLDS:
        patch.setattr(module, name, stream.choice((getattr(module, name),) * len(low) + low))
