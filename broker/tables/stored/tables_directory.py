"""The place of a broker's store of tables: the folder `tables` of its data directory, opened on first use.

The store is a cache. A file that is damaged, or in which a damaged page was found before, is set aside, and a new one
is made: the tables are restored from their snapshots and logs.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from gnomon.broker.tables.stored.store_forms import DATABASES
from gnomon.runtime.disk.data_directory import DirectoryKind, hold_directory
from gnomon.runtime.world import Disk, Durability, Environment, StoreDamaged, WorldError

TABLES_FOLDER: Final = "tables"
DAMAGED_FILE: Final = "tables-damaged"
"""A small file beside the folder, with some text if the store has a damaged page."""


class NoDataDirectory(WorldError):
    """A broker without a data directory has no place for tables on disk."""


class TablesDirectory:
    """The folder of one broker."""

    def __init__(
        self,
        disk: Disk,
        data_dir: Path | None,
        map_bytes: int,
        durability: Durability,
        kind: DirectoryKind | None = None,
    ) -> None:
        """A folder that is not in use.

        Args:
            data_dir: None for a broker that was given none.
            kind: the kind of the data directory, if this process does not hold it already.
        """
        self._disk = disk
        self._data_dir = data_dir
        self._map_bytes = map_bytes
        self._durability = durability
        self._kind = kind
        self._held = ExitStack()
        self.problem: str | None = None
        """The reason why the file before was set aside."""

    def open(self) -> Environment:
        """Takes the data directory, and opens the environment in its folder.

        Raises:
            NoDataDirectory: no directory was given.
            DirectoryTaken, OtherFormat, OtherKind: it cannot be taken.
            DiskFull, DiskFailed: the environment cannot be opened.
        """
        if self._data_dir is None:
            raise NoDataDirectory(
                "tables on disk need a data directory, and this broker was started without one: set data_dir "
                "(--data-dir), or create tables with gnomon.view.engine=memory"
            )
        with ExitStack() as opened:
            if self._kind is not None:
                opened.enter_context(hold_directory(self._disk, self._data_dir, self._kind))
            environment = self._sound(self._data_dir)
            opened.callback(environment.close)
            self._held = opened.pop_all()
        return environment

    def _sound(self, data_dir: Path) -> Environment:
        """The environment, after a damaged one was set aside."""
        if self._disk.read_file(data_dir / DAMAGED_FILE):
            self._set_aside(data_dir, "a damaged page was found in it")
            self._disk.write_file(data_dir / DAMAGED_FILE, b"")
        try:
            return self._open(data_dir)
        except StoreDamaged as error:
            self._set_aside(data_dir, str(error))
            return self._open(data_dir)

    def _open(self, data_dir: Path) -> Environment:
        return self._disk.open_environment(
            data_dir / TABLES_FOLDER,
            databases=DATABASES,
            map_bytes=self._map_bytes,
            durability=self._durability,
            readahead=False,
        )

    def _set_aside(self, data_dir: Path, reason: str) -> None:
        self._disk.set_aside(data_dir / TABLES_FOLDER)
        self.problem = reason

    def mark_damaged(self) -> None:
        """The file has a damaged page: the next start sets it aside."""
        assert self._data_dir is not None, "a file without a directory"
        self._disk.write_file(self._data_dir / DAMAGED_FILE, b"damaged\n")

    def close(self) -> None:
        """Closes the environment, after the commits under way, and gives the data directory up."""
        self._held.close()
