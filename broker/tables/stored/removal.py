"""Removes rows of the store of tables, a few in each commit: others' commits do not wait for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gnomon.broker.tables.stored import store_forms as forms
from gnomon.runtime.world import Environment, Freeing

REMOVED_AT_ONCE: Final = 1_000


async def remove_rows(environment: Environment, databases: Sequence[str], number: int) -> None:
    """Removes all rows of the table with a number.

    Raises:
        DiskFull, DiskFailed: they could not be removed.
    """
    begin, handles = forms.number_key(number), environment.databases

    def remove(transaction: Any) -> bool:
        room = REMOVED_AT_ONCE
        for name in databases:
            cursor = transaction.cursor(handles[name])
            while room and cursor.set_range(begin) and bytes(cursor.key()[: len(begin)]) == begin:
                cursor.delete()
                room -= 1
        return not room

    while await environment.commit(Freeing(remove)):
        pass
