"""Bugs in the stores and the snapshots of tables; the sweep over clients of tables looks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from broker_scenario import cluster_with
from conditional_scenario import ALONE
from table_scenario import TABLES, USERS

from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.broker.tables.engines.table_image import TableImage
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.recent_operations import RecentOperations
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.broker.tables.stored import store_forms as forms
from gnomon.broker.tables.stored import unflushed
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.stored.store_forms import TablePosition
from gnomon.broker.tables.stored.unflushed import Unflushed
from gnomon.broker.tables.table_log import LogUnreadable, TableLog
from gnomon.broker.tables.table_origin import TableOrigin
from gnomon.broker.tables.table_replica import TableReplica
from gnomon.broker.tables.table_state import TableState
from gnomon.client.errors import Compacted
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds
from gnomon.log.tables.key_entry import NEVER, numbers_of
from gnomon.log.tables.snapshot_form import TABLES as SNAPSHOTS
from gnomon.testing.simulation.disk.simulated_disk import DiskConditions
from gnomon.testing.simulation.faults import Fault, FaultMix
from gnomon.testing.simulation.network.simulated_network import NetworkConditions

from planted import shadows
from planted.planted_bug import ScenarioBugs

CONFIRMED_LATE = cluster_with(
    replace(
        ALONE,
        beside=USERS,
        mix=FaultMix(
            {Fault.SLOW_DISK: 1.0, Fault.PARTITION: 1.0},
            NetworkConditions(latency_seconds_mean=0.001),
            DiskConditions(sync_seconds_mean=0.02),
        ),
    )
)
"""Tables whose records are often stored for long before they are confirmed, and sometimes never are."""
STORED_TABLE_BUGS = ScenarioBugs(TABLES)
planted = STORED_TABLE_BUGS.planted


@planted("the position of a table is flushed before its changes", breaks="broker.tables.stored.disk_engine 1")
def position_first(patch: pytest.MonkeyPatch) -> None:
    flush = DiskEngine.flush

    async def ahead(engine: Any, applied: Offset, record: bytes | None) -> Any:
        key, tables = engine._record_key, engine._environment.databases[forms.TABLES]
        position = TablePosition(applied, record, *engine._flushed)
        value = forms.seal(key, forms.encode_table(engine._number, position))
        await engine._environment.commit(lambda transaction: transaction.put(key, value, db=tables))
        return await flush(engine, applied, record)

    patch.setattr(DiskEngine, "flush", ahead)


@planted("changes of a table are flushed without their position", breaks="broker.tables.stored.disk_engine 1")
def without_position(patch: pytest.MonkeyPatch) -> None:
    """Only the first flush writes the position, so increments and versions are applied again after a restart."""
    flush, first = DiskEngine.flush, dict[int, tuple[Offset, bytes | None]]()

    async def behind(engine: Any, applied: Offset, record: bytes | None) -> Any:
        return await flush(engine, *first.setdefault(engine._number, (applied, record)))

    patch.setattr(DiskEngine, "flush", behind)


@planted("a flush writes what is not durable", breaks="broker.tables.stored.disk_engine 1")
def above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    give_out = TableState.give_out

    def applied_early(state: Any, changes: Any, base_offset: Any, append_time_ms: int) -> None:
        give_out(state, changes, base_offset, append_time_ms)
        if isinstance(state.engine, DiskEngine):
            for key, packed in state._given_out[-1][1].after.items():
                if numbers_of(packed)[2]:
                    state.engine.put(key, packed, state.engine.get(key))

    patch.setattr(TableState, "give_out", applied_early)


@planted(
    "the store of another life of a log is kept",
    breaks="broker.tables.table_origin 1",
    found_by="tests/client/tables/test_disk_table.py",
)
def of_another_life(patch: pytest.MonkeyPatch) -> None:
    async def same(log: Any, end: Offset) -> bytes:
        return b"same"

    patch.setattr(TableLog, "identity_before", same)


@planted("a key that was deleted is in the store", breaks="broker.tables.stored.unflushed 1")
def never_deleted(patch: pytest.MonkeyPatch) -> None:
    write = unflushed.write_entries

    def without_deletions(transaction: Any, databases: Any, number: int, changed: Any) -> None:
        write(transaction, databases, number, [item for item in changed if item[1] is not unflushed.DELETED])

    patch.setattr(unflushed, "write_entries", without_deletions)


@planted(
    "the expiry of a value that was replaced stays in the store",
    breaks="broker.tables.stored.unflushed 2",
    found_by="tests/broker/tables/test_disk_engine.py",
)
def expiry_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unflushed, "end_expiry", lambda changes, key, before: None)


@planted("a value that expires is not known to, once it is in the store", breaks="broker.tables.table_expiry 1")
def expiry_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unflushed, "numbers_of", lambda packed: (*numbers_of(packed)[:3], NEVER))


@planted(
    "numbered operations are not in the store",
    breaks="broker.tables.recent_operations 1",
    found_by="tests/client/tables/test_disk_table.py",
)
def operations_not_stored(patch: pytest.MonkeyPatch) -> None:
    begin_flush = DiskEngine.begin_flush
    patch.setattr(DiskEngine, "begin_flush", lambda engine, operations: begin_flush(engine, {}))


@planted(
    "numbered operations are not in snapshots",
    breaks="broker.tables.recent_operations 1",
    found_by="tests/client/tables/test_snapshots.py",
)
def operations_not_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecentOperations, "below", lambda operations, end: iter(()))


@planted(
    "a damaged row of the store is taken for good",
    breaks="broker.tables.stored.store_forms 2",
    found_by="tests/broker/tables/test_disk_engine.py",
)
def damage_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forms, "unseal", lambda key, stored: bytes(stored[:-4]))


@planted("a snapshot has entries of later revisions", breaks="log.tables.snapshot_form 1")
def of_two_revisions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableImage, "wants", lambda image, key: False)


@planted(
    "a snapshot is named before its ledger is sealed",
    breaks="log.tables.snapshot_form 2",
    found_by="tests/client/tables/test_snapshots.py",
)
def named_too_early(patch: pytest.MonkeyPatch) -> None:
    seal, name, open_ones = Ledger.seal, SnapshotLedgers.name, dict[str, Any]()

    async def later(ledger: Any, properties: Any = None, *, compare: Any = (), also: Any = ()) -> None:
        if ledger.name.startswith(SNAPSHOTS):
            open_ones[ledger.name] = ledger
        else:
            await seal(ledger, properties, compare=compare, also=also)

    async def named(ledgers: Any, record: Any) -> bool:
        done = await name(ledgers, record)
        if done:
            await seal(open_ones.pop(record.ledger))
        return done

    patch.setattr(Ledger, "seal", later)
    patch.setattr(SnapshotLedgers, "name", named)


@planted(
    "a table passes over records that are trimmed",
    breaks="broker.tables.table_log 2",
    found_by="tests/broker/tables/test_table_log.py",
)
def trimmed_passed_over(patch: pytest.MonkeyPatch) -> None:
    batches = TableLog.batches

    async def passing(log: Any, bounds: Any, offset: Offset) -> list[bytes]:
        try:
            return await batches(log, bounds, offset)
        except LogUnreadable as error:
            trimmed = error.__cause__
            if not isinstance(trimmed, Compacted):
                raise
            return await batches(log, bounds, Offset(trimmed.first))

    patch.setattr(TableLog, "batches", passing)


@planted("records that no snapshot has are trimmed", breaks="broker.tables.snapshots.table_snapshots 3")
def trimmed_too_far(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostedTable, "kept_from", property(lambda table: Offset(1 << 60)))


@planted(
    "a snapshot does not compare its digest",
    breaks="log.tables.snapshot_form 2",
    found_by="tests/client/tables/test_snapshots.py",
)
def digest_ignored(patch: pytest.MonkeyPatch) -> None:
    parts = SnapshotLedgers.parts

    async def unchecked(ledgers: Any, record: Any) -> Any:
        try:
            async for each in parts(ledgers, record):
                yield each
        except Exception:
            return

    patch.setattr(SnapshotLedgers, "parts", unchecked)


@planted(
    "a replica applies what is stored and not confirmed",
    breaks="broker.tables.table_replica 1",
    scenario=CONFIRMED_LATE,
)
def stored_and_applied(patch: pytest.MonkeyPatch) -> None:
    shadows.stored_is_confirmed(patch)


@planted(
    "a replica shows a part of a batch",
    breaks="broker.tables.loaded_table 2",
    found_by="tests/client/tables/test_shadow_table.py",
)
def part_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    def whatever(replica: Any, look: Any, refuse: Any) -> None:
        if replica._table is None:
            refuse("the replica of the table is being loaded")
        else:
            look(replica._table.state)

    patch.setattr(TableReplica, "look", whatever)


@planted(
    "a replica discards what its shadow does not show yet",
    breaks="broker.tables.table_origin 4",
    found_by="tests/client/tables/test_shadow_table.py",
)
def discarded_early(patch: pytest.MonkeyPatch) -> None:
    begin = TableOrigin.begin

    async def at_once(origin: TableOrigin, log: LogBounds, *, grows: bool = False) -> Any:
        return await begin(origin, log)

    patch.setattr(TableOrigin, "begin", at_once)
