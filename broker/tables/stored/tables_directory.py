"""The place of a broker's store of tables: the folder `tables` of its data directory, opened on first use."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from gnomon.broker.tables.stored.store_forms import DATABASES
from gnomon.runtime.disk.data_directory import DirectoryKind, hold_directory
from gnomon.runtime.world import Disk, Durability, Environment, WorldError

TABLES_FOLDER: Final = "tables"


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
            environment = self._disk.open_environment(
                self._data_dir / TABLES_FOLDER,
                databases=DATABASES,
                map_bytes=self._map_bytes,
                durability=self._durability,
            )
            opened.callback(environment.close)
            self._held = opened.pop_all()
        return environment

    def close(self) -> None:
        """Closes the environment, after the commits under way, and gives the data directory up."""
        self._held.close()
