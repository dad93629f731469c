"""The interface of tables whose rows a replay replaces. Pure.

1. A replay deletes the rows that it replaces and adds its own in one commit, which is refused if another writer has
   changed such rows since the table was read. It leaves the record of the pipeline as it is, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.tables.replaced_rows import Condition
from gnomon.spark.tables.table import LakeTable


class ReplacingTable(LakeTable, Protocol):
    """A table whose mode is REPLACE."""

    def replace(self, schema: pa.Schema, files: Sequence[DataFile], replaced: Condition) -> None:
        """Deletes the rows that fulfil a condition, and adds files, in one atomic act (invariant 1).

        Args:
            schema: see `prepare`.
            files: written in the layout that `prepare` returned.

        Raises:
            BadTable: the schema does not fit, or rows do not fulfil the condition; nothing is changed.
            TableBusy: other writers were faster each time; nothing is changed.
        """
