"""NATS with a bucket of keys in synced files, under the load of `nats bench`."""

from __future__ import annotations

import re
from typing import ClassVar

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.stage import Stage
from bench.stores.go_program import GoProgram
from bench.stores.store import KeyValueStore, output_of
from bench.system import Installation
from bench.workspace import Workspace

SERVER = GoProgram("github.com/nats-io/nats-server/v2", "v2.15.2")
CLIENT = GoProgram("github.com/nats-io/natscli/nats", "v0.5.0")
_RATE = re.compile(r"([\d,]+) msgs/sec")


class Nats(KeyValueStore):
    """One server whose streams are synced with each message."""

    name: ClassVar[str] = "nats"

    def install(self, workspace: Workspace) -> Installation:
        """See `System`."""
        SERVER.build(self.cache)
        CLIENT.build(self.cache)
        return super().install(workspace)

    def command(self, installation: Installation) -> list[str]:
        """See `Program`."""
        config = installation.data_dir / "nats.conf"
        config.write_text(
            f"listen: 127.0.0.1:{installation.port}\n"
            f'jetstream {{ store_dir: "{installation.data_dir}", sync_interval: always }}\n'
        )
        return [str(SERVER.build(self.cache)), "-c", str(config)]

    def puts(self, stage: Stage, clients: int, operations: int) -> Figures:
        """See `KeyValueStore`."""
        return self._run(stage, clients, operations, "put")

    def gets(self, stage: Stage, clients: int, operations: int) -> Figures:
        """See `KeyValueStore`."""
        raise GeneratorUnavailable("gets of NATS are not compared")

    def _run(self, stage: Stage, clients: int, operations: int, test: str) -> Figures:
        load = ("--clients", str(clients), "--msgs", str(operations), "--size", "100", "--no-progress")
        server = ("--server", f"nats://{stage.server.bootstrap}")
        shown = output_of([str(CLIENT.build(self.cache)), *server, "bench", "kv", test, *load])
        rates = _RATE.findall(shown)
        if not rates:
            raise GeneratorFailed(f"nats bench printed no figures: {shown.strip()[-300:]}")
        return {"rate": float(rates[-1].replace(",", ""))}
