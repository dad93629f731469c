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
from types import TracebackType

from gnomon.testing.daemon import Daemon, DaemonNotStarted


class BrokerNotStarted(Exception):
    """The broker ended or stayed silent before it was ready; the text contains its output."""


class KafkaBroker:
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
        self._log = self._directory / "log"
        self._variables = _variables({"log.level": "warning", "bookie.durability": durability, **(settings or {})})
        self._command = command
        self._daemon: Daemon | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self.native_host = "127.0.0.1"
        self.native_port = 0
        self.admin_host = "127.0.0.1"
        self.admin_port = 0

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for Kafka clients; stays the same over `stop`, `kill` and `start`."""
        return f"{self.host}:{self.port}"

    @property
    def native_address(self) -> str:
        """`host:port` for `gnomon.connect`; stays the same over `stop`, `kill` and `start`."""
        return f"{self.native_host}:{self.native_port}"

    @property
    def admin_url(self) -> str:
        """The address of health, metrics and the admin API."""
        return f"http://{self.admin_host}:{self.admin_port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._daemon is not None, "the broker does not run: call start()"
        return self._daemon.pid

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._daemon is not None and self._daemon.running

    def log(self) -> str:
        """Its standard error so far, of all starts."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Starts the broker and returns once it serves: the first time on a free port, then on the same one.

        Raises:
            BrokerNotStarted: with its output.
        """
        assert not self.running, "the broker runs already"
        ports = ("--kafka-port", self.port, "--native-port", self.native_port, "--admin-port", self.admin_port)
        words = ("standalone", "--data-dir", self.data_dir, *ports)
        self._daemon = Daemon(words, self._log, self._variables, self._command)
        try:
            ready = self._daemon.wait_ready().ready
        except DaemonNotStarted as error:
            self._daemon = None
            raise BrokerNotStarted(str(error)) from None
        self.host, self.port = _place(ready["kafka"])
        self.native_host, self.native_port = _place(ready["native"])
        self.admin_host, self.admin_port = _place(ready["admin"])

    def stop(self) -> int:
        """Asks the broker to end (SIGTERM) and waits: pending requests are answered first.

        Returns:
            its exit code, 0 when all went well.
        """
        daemon, self._daemon = self._daemon, None
        return 0 if daemon is None else daemon.stop()

    def kill(self) -> None:
        """Ends the broker at once (SIGKILL), at any point of its work."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.kill()

    def close(self) -> None:
        """Stops the broker and removes its temporary directory."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> KafkaBroker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _variables(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    """The settings as environment variables."""
    from gnomon.runtime.settings.settings import declared_settings

    own = declared_settings()
    variables = {}
    for name, value in settings.items():
        variable = own[name].variable if name in own else "GNOMON_KAFKA__" + name.replace(".", "_").upper()
        variables[variable] = str(value).lower() if isinstance(value, bool) else str(value)
    return variables


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
