"""The tables of a broker in a storm: each start draws how often it flushes, and at times the store is gone."""

from __future__ import annotations

from pathlib import Path

from gnomon.broker.tables.stored.tables_directory import TABLES_FOLDER
from gnomon.runtime.settings.settings import TableSettings
from gnomon.testing.simulation.disk.simulated_disk import SimulatedDisk
from gnomon.testing.simulation.simulated_world import SimulatedWorld

MAP_BYTES = 64 << 20
WIPE_RATE = 0.15
"""The share of starts before which an operator deletes the store."""


def drawn_table_settings(world: SimulatedWorld, data_dir: Path) -> TableSettings:
    """The settings of one start, which may find the store of tables deleted."""
    stream = world.random("table-settings")
    if stream.random() < WIPE_RATE:
        assert isinstance(world.disk, SimulatedDisk), "a simulated world has a simulated disk"
        world.disk.remove_folder(data_dir / TABLES_FOLDER)
    return TableSettings(
        flush_bytes=stream.choice((1, 2_000, 16 << 20)),
        flush_seconds=stream.choice((0.01, 0.3, 2.0)),
        snapshot_bytes_per_second=stream.choice((1_000, 32 << 20)),
        map_bytes=MAP_BYTES,
    )
