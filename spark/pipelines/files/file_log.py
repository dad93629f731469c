"""The batches of a pipeline of files, in the folder of a generation of its checkpoint.

    <generation>/metadata          the query id
    <generation>/batches/<n>       the files of batch n, recorded before its rows are decided
    <generation>/commits/<n>       batch n is in the topic

1. A file is in one batch: a batch is recorded with files that no earlier one has.
2. A batch never changes once it is recorded. Of two drivers that record the same number, one succeeds.
3. Batch n + 1 is recorded only after batch n is in the topic. So at most the last batch runs again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.files.next_files import SourceFile
from gnomon.spark.pipelines.settings.section import BadPipeline
from gnomon.spark.tables.local_folder import create_whole, make_folder

_VERSION: Final = 1


class FileLog:
    """The batches of one generation.

    Raises:
        BadPipeline: the checkpoint is that of a pipeline of topics.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.spark_folder
        if (self._folder / "offsets").exists():
            raise BadPipeline(f"checkpoint: {self._folder} is that of a pipeline of topics: give another folder")

    def query(self) -> str | None:
        """The id of the query; None if the pipeline has not run since the last reset."""
        return self._checkpoint.query()

    def begin(self, query: str) -> str:
        """The id of the query, which is this one unless the pipeline has one."""
        for name in ("batches", "commits"):
            make_folder(self._folder / name)
        create_whole(self._folder / "metadata", json.dumps({"id": query}).encode())
        found = self.query()
        assert found is not None, "the file was created, or was there"
        return found

    def next_number(self) -> int:
        """The number of the first batch that is not known to be in the topic."""
        last = self._checkpoint.committed()
        return 0 if last is None else last + 1

    def batch(self, number: int) -> tuple[SourceFile, ...] | None:
        """The files of a batch; None if it is not recorded.

        Raises:
            BadPipeline: its record cannot be read.
        """
        path = self._folder / "batches" / str(number)
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            if content["version"] != _VERSION:
                raise BadPipeline(
                    f"{path}: version {content['version']} is not one that this gnomon knows ({_VERSION})"
                )
            return tuple(SourceFile(str(name), int(size), int(time)) for name, size, time in content["files"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise BadPipeline(f"{path}: not a file of gnomon's: {error!r:.200}") from error

    def read(self) -> dict[str, SourceFile]:
        """The files of all recorded batches, by their names; raises as `batch`."""
        found: dict[str, SourceFile] = {}
        for path in self._folder.glob("batches/[0-9]*"):
            found |= {each.name: each for each in self.batch(int(path.name)) or ()}
        return found

    def record(self, number: int, files: Sequence[SourceFile]) -> bool:
        """Records a batch; returns whether it did: another driver may have recorded it."""
        content = {"version": _VERSION, "files": files}
        return create_whole(self._folder / "batches" / str(number), json.dumps(content, indent=0).encode())

    def end(self, number: int) -> bool:
        """Records that a batch is in the topic; returns whether it did."""
        return create_whole(self._folder / "commits" / str(number), b"{}")
