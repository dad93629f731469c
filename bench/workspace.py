"""The place of a benchmark run's programs, data directories and results."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Workspace:
    """`cache` outlives runs (compiled generators, Kafka's jars), `scratch` is this run's data and logs."""

    cache: Path
    scratch: Path
    results: Path

    @classmethod
    def make(cls) -> Workspace:
        cache = SOURCES.parent / ".cache" / "bench"
        results = SOURCES / "results"
        for folder in (cache, results):
            folder.mkdir(parents=True, exist_ok=True)
        return cls(cache, Path(tempfile.mkdtemp(prefix="run-", dir=cache)), results)

    def data_dir(self, name: str) -> Path:
        """An empty directory for a server's data."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))

    def remove(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
