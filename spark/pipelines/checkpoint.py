"""The checkpoint of a pipeline: Spark's own folder for each generation, and a file that says which one is in use.

    <checkpoint>/pipeline.json     the generation, its start and its first offsets, and the query that it replaces
    <checkpoint>/<generation>/     Spark's: metadata (the query id), offsets, commits, state

A reset begins a new generation: Spark gives it another query id, and the table lets it replace the query that had
written last. The folders of earlier generations stay.

The first driver of a generation records the offsets where it starts, so that the next one starts there if no batch has
ended: `latest`, a time and the start of a log are other offsets by then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gnomon.spark.offsets import Nested, Offsets, flat
from gnomon.spark.pipelines.settings.section import BadPipeline

_FILE: Final = "pipeline.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Generation:
    """One start of a pipeline."""

    number: int
    starting: Mapping[str, str] | None
    """The options that say where it starts; None for those of the pipeline's file."""
    replaces: str | None
    """The query that had written the table when the generation began."""
    first: Nested | None = None
    """The offsets where it starts, by topic and partition; None until a driver has recorded them."""


FIRST: Final = Generation(0, None, None)


class Checkpoint:
    """The checkpoint in a folder.

    Raises:
        BadPipeline: the folder is not on a file system, or its file cannot be read.
    """

    def __init__(self, folder: str) -> None:
        if "://" in folder:
            raise BadPipeline(f"checkpoint = {folder!r:.300}: expected a folder of a file system")
        self._folder = Path(folder)
        self.generation = self._read()

    @property
    def spark_folder(self) -> Path:
        """The folder that Spark is given."""
        return self._folder / str(self.generation.number)

    def query(self) -> str | None:
        """The id of the query; None if the pipeline has not run since the last reset."""
        try:
            return str(json.loads((self.spark_folder / "metadata").read_text())["id"])
        except FileNotFoundError:
            return None

    def committed(self) -> int | None:
        """The number of the last batch that has ended; None if there is none."""
        return max((int(path.name) for path in self.spark_folder.glob("commits/[0-9]*")), default=None)

    def offsets(self, batch: int) -> Nested:
        """The offsets at which a batch ends, by topic and partition; the smallest if it reads a topic several times."""
        found: Nested = {}
        for line in (self.spark_folder / "offsets" / str(batch)).read_text().splitlines()[2:]:
            for topic, partitions in json.loads(line).items():
                known = found.setdefault(topic, {})
                for partition, offset in partitions.items():
                    known[partition] = min(offset, known.get(partition, offset))
        return found

    def first(self) -> Offsets | None:
        """Where the generation starts; None if no driver has recorded it."""
        first = self.generation.first
        return None if first is None else flat(first)

    def reset(self, starting: Mapping[str, str], replaces: str | None) -> None:
        """Begins a new generation, which replaces a query."""
        self._write(Generation(self.generation.number + 1, dict(starting), replaces))

    def begin(self, first: Nested) -> None:
        """Records where the generation starts."""
        self._write(replace(self.generation, first=first))

    def _write(self, generation: Generation) -> None:
        self.generation = generation
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {
            "version": _VERSION,
            "generation": self.generation.number,
            "starting": self.generation.starting,
            "replaces": self.generation.replaces,
            "first": self.generation.first,
        }
        written = self._folder / f"{_FILE}.new"
        with written.open("w") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._folder / _FILE)

    def _read(self) -> Generation:
        path = self._folder / _FILE
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            if content["version"] != _VERSION:
                raise BadPipeline(
                    f"{path}: version {content['version']} is not one that this gnomon knows ({_VERSION})"
                )
            return Generation(
                int(content["generation"]), content["starting"], content["replaces"], content.get("first")
            )
        except FileNotFoundError:
            return FIRST
        except (ValueError, KeyError, TypeError) as error:
            raise BadPipeline(f"{path}: not a file of gnomon's: {error!r:.200}") from error
