"""A real broker for tests: a child process on a free port, ready in well under a second.

Everything here blocks for as long as a process takes to start or to stop, and needs no event loop, so the same lines
serve plain tests, asyncio and Trio.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import gnomon

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
_READY = re.compile(r"ready kafka=(\S+):(\d+) admin=(\S+):(\d+) data=")


class BrokerNotStarted(Exception):
    """The broker ended or stayed silent before it was ready; the text holds what it wrote."""


class KafkaBroker:
    """A standalone broker in a process of its own, which ends with this one.

    Args:
        data_dir: where it stores; None is a temporary directory that `close` removes.
        durability: `none` leaves syncing to the operating system: data survives `kill`, not a power cut. `synced` is
            what a broker in production does.
        settings: Kafka's broker settings by Kafka's names (`num.partitions`), and gnomon's own by their dotted names
            (`broker.connections_max`), as docs/settings.md lists them. The environment's `GNOMON_` variables are
            not passed on.

    Use it as a context manager, or call `start` and `close`.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        durability: str = "none",
        settings: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        self._own_directory = tempfile.mkdtemp(prefix="gnomon-") if data_dir is None else None
        self.data_dir = Path(self._own_directory or data_dir or "") / ("data" if data_dir is None else "")
        self._log = tempfile.TemporaryFile(prefix="gnomon-log-")  # noqa: SIM115 - lives until close
        self._variables = _variables({"log.level": "warning", "bookie.durability": durability, **(settings or {})})
        self._process: subprocess.Popen[str] | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self.admin_host = "127.0.0.1"
        self.admin_port = 0

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for Kafka clients; stays the same over `stop`, `kill` and `start`."""
        return f"{self.host}:{self.port}"

    @property
    def admin_url(self) -> str:
        """Where health, metrics and the admin API are."""
        return f"http://{self.admin_host}:{self.admin_port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None, "the broker does not run: call start()"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it wrote to standard error so far, all starts together."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def start(self) -> None:
        """Starts the broker and returns once it serves: the first time on a free port, then on the same one.

        Raises:
            BrokerNotStarted: with what it wrote.
        """
        assert not self.running, "the broker runs already"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "gnomon.cli.child", "standalone"),
                *("--data-dir", str(self.data_dir)),
                *("--kafka-port", str(self.port), "--admin-port", str(self.admin_port)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**_inherited(), **self._variables},
            process_group=0,  # an interrupt from the keyboard is the tests' to handle, not the broker's
        )
        line = self._first_line()
        ready = _READY.match(line)
        if ready is None:
            end = "ended" if self._process.poll() is not None else f"was silent for {START_SECONDS_MAX:g} s"
            self.kill()
            raise BrokerNotStarted(f"the broker {end} before it was ready; it wrote:\n{line}{self.log()}")
        self.host, self.port = ready[1], int(ready[2])
        self.admin_host, self.admin_port = ready[3], int(ready[4])

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + START_SECONDS_MAX
            while (left := deadline - time.monotonic()) > 0:
                if selector.select(left):
                    line = self._process.stdout.readline()
                    if not line:
                        self._process.wait()
                    return line
        return ""

    def stop(self) -> int:
        """Asks the broker to end (SIGTERM) and waits: what was asked of it is answered first.

        Returns:
            its exit code, 0 when all went well.
        """
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._ended()

    def kill(self) -> None:
        """Ends the broker at once (SIGKILL), in the midst of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def _ended(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None
        return code

    def close(self) -> None:
        """Stops the broker and removes its temporary directory."""
        self.stop()
        self._log.close()
        if self._own_directory is not None:
            shutil.rmtree(self._own_directory, ignore_errors=True)

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
    from gnomon.runtime.settings import declared_settings

    own = declared_settings()
    variables = {}
    for name, value in settings.items():
        variable = own[name].variable if name in own else "GNOMON_KAFKA__" + name.replace(".", "_").upper()
        variables[variable] = str(value).lower() if isinstance(value, bool) else str(value)
    return variables


def _inherited() -> dict[str, str]:
    """This process's environment without settings of ours, and with this very gnomon importable."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    paths = [str(Path(gnomon.__file__).parents[1]), *filter(None, [inherited.get("PYTHONPATH")])]
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths)}
