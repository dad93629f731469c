"""The settings of tables in a storm: each start of a broker draws how often it flushes."""

from __future__ import annotations

from gnomon.runtime.settings.settings import TableSettings
from gnomon.testing.simulation.simulated_world import SimulatedWorld

MAP_BYTES = 64 << 20


def drawn_table_settings(world: SimulatedWorld) -> TableSettings:
    """The settings of one start."""
    stream = world.random("table-settings")
    return TableSettings(
        flush_bytes=stream.choice((1, 2_000, 16 << 20)),
        flush_seconds=stream.choice((0.01, 0.3, 2.0)),
        map_bytes=MAP_BYTES,
    )
