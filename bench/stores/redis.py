"""Redis with a synced log, under the load of `redis-benchmark`."""

from __future__ import annotations

import csv
import io
import shutil
from typing import ClassVar

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.stage import Stage
from bench.stores.store import KeyValueStore, output_of
from bench.system import Installation
from bench.workspace import Workspace


class Redis(KeyValueStore):
    """One server with `appendfsync always`."""

    name: ClassVar[str] = "redis"

    def install(self, workspace: Workspace) -> Installation:
        """See `System`."""
        for program in ("redis-server", "redis-benchmark"):
            if shutil.which(program) is None:
                raise GeneratorUnavailable(f"no {program} on the path: Debian's packages redis-server and redis-tools")
        return super().install(workspace)

    def command(self, installation: Installation) -> list[str]:
        """See `Program`."""
        place = ("--port", str(installation.port), "--bind", "127.0.0.1", "--dir", str(installation.data_dir))
        return ["redis-server", *place, "--appendonly", "yes", "--appendfsync", "always", "--save", ""]

    def puts(self, stage: Stage, clients: int, operations: int) -> Figures:
        """See `KeyValueStore`."""
        return self._run(stage, clients, operations, "set")

    def gets(self, stage: Stage, clients: int, operations: int) -> Figures:
        """See `KeyValueStore`."""
        return self._run(stage, clients, operations, "get")

    def _run(self, stage: Stage, clients: int, operations: int, test: str) -> Figures:
        load = ("-c", str(clients), "-n", str(operations), "-r", "10000", "-d", "100", "-t", test)
        shown = output_of(["redis-benchmark", "-p", str(stage.server.port), *load, "--csv"])
        rows = [row for row in csv.DictReader(io.StringIO(shown)) if row["test"].lower() == test]
        if len(rows) != 1:
            raise GeneratorFailed(f"redis-benchmark printed no figures: {shown.strip()[-300:]}")
        (row,) = rows
        return {
            "rate": float(row["rps"]),
            "p50_ms": float(row["p50_latency_ms"]),
            "p99_ms": float(row["p99_latency_ms"]),
        }
