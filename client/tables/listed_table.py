"""The tables of a cluster, as a broker lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnomon.client.errors import BrokerFailed
from gnomon.client.leaders import Leaders


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table in a list."""

    name: str
    engine: str
    """The place of the entries: `disk` or `memory`."""
    partitions: int


async def list_tables(leaders: Leaders) -> list[ListedTable]:
    """All tables in order of name, read in pages; one that is created or deleted meanwhile may be missing.

    Raises:
        NativeError: no broker answered, or it has refused.
    """
    found: list[ListedTable] = []
    while rows := await leaders.ask_any("tables", found[-1].name if found else ""):
        found += map(_listed, rows)
    return found


def _listed(row: Any) -> ListedTable:
    try:
        name, engine, partitions = row
    except (TypeError, ValueError) as error:
        raise BrokerFailed(f"the broker has answered in another form: {error}") from error
    return ListedTable(name, engine, partitions)
