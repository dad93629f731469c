"""A real broker for tests: a child process on a free port, ready in well under a second.

Every call here blocks while a process starts or stops, and needs no event loop, so the same lines work in plain tests,
asyncio and Trio.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.testing.fixture import Fixture
from gnomon.testing.node_process import BrokerNotStarted as BrokerNotStarted
from gnomon.testing.node_process import BrokerProcess

BROKER_PORTS = {"--kafka-port": "kafka", "--native-port": "native", "--admin-port": "admin"}


class KafkaBroker(BrokerProcess, Fixture):
    """A standalone broker in a process of its own, which ends with this one.

    Args:
        data_dir: its data; None is a temporary directory that `close` removes.
        durability: `none` leaves syncing to the operating system: data survives `kill`, not a power cut. `synced` is
            the setting for production.
        settings: Kafka's broker settings by Kafka's names (`num.partitions`), and gnomon's own by their dotted names
            (`broker.connections_max`), as docs/settings.md lists them. `GNOMON_` variables of the environment are not
            passed on.
        command: the program that runs the broker, if it is installed in another environment:
            `["/opt/gnomon/bin/python", "-P", "-m", "gnomon.cli.child"]`. It gets the words after `gnomon`.

    Use it as a context manager, or call `start` and `close`.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        durability: str = "none",
        settings: Mapping[str, str | int | bool] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="gnomon-"))
        self.data_dir = self._directory / "data" if data_dir is None else Path(data_dir)
        super().__init__(
            ("standalone", "--data-dir", self.data_dir),
            BROKER_PORTS,
            self._directory / "log",
            variables_of({"log.level": "warning", "bookie.durability": durability, **(settings or {})}),
            command,
        )

    def close(self) -> None:
        """Stops the broker and removes its temporary directory."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


def variables_of(settings: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """The settings as environment variables."""
    from gnomon.runtime.settings.settings import declared_settings

    own = declared_settings()
    variables = {}
    for name, value in settings.items():
        variable = own[name].variable if name in own else "GNOMON_KAFKA__" + name.replace(".", "_").upper()
        variables[variable] = str(value).lower() if isinstance(value, bool) else str(value)
    return variables
