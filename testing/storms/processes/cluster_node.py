"""One node of a cluster of real processes: its process can be started, signalled, killed and started again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Final

from gnomon.cli.child import PROGRAM
from gnomon.testing.daemon import ready_facts, spawn
from gnomon.testing.etcd_server import etcd_command, free_port
from gnomon.testing.storms.processes.lan import LanHost

LOG_BYTES_SHOWN: Final = 4000
LOOPBACK: Final = "127.0.0.1"
ETCD_PORT: Final = 2379
PAGE_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.2
"""The timeout of one `look` at an etcd that starts."""


class Node:
    """A gnomon process."""

    def __init__(self, name: str, host: LanHost | None, log: Path) -> None:
        self.name = name
        self.role = name.partition("-")[0]
        self.host = host
        self.log = log
        self.data_file: Path | None = None
        """The data file, of a bookie only."""
        self.command: list[object] = []
        self.ready: dict[str, str] = {}
        """The facts of the last ready line, kept while the process does not run; empty before the first one."""
        self.serves = False
        self._process: subprocess.Popen[str] | None = None
        self._line = ""

    @property
    def address(self) -> str:
        """The address at which the process listens."""
        return LOOPBACK if self.host is None else self.host.address

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process that ended, until the next start; None while it runs."""
        return None if self._process is None else self._process.poll()

    def ended_well(self, code: int) -> bool:
        """Whether a process that was asked to end by SIGTERM may end with this code."""
        return code == 0 or (code == -signal.SIGTERM and not self.serves)

    def start(self) -> None:
        """Starts the process, without waiting for it."""
        assert not self.running, f"{self.name} already runs"
        self._close_pipes()
        self._process = spawn(self.command, self.log, prefix=() if self.host is None else self.host.prefix)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._line, self.serves = "", False

    def look(self) -> None:
        """Reads the output of the process: with its ready line, it serves."""
        if self.serves or not self.running:
            return
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            self._line += os.read(self._process.stdout.fileno(), 65536).decode()
        except BlockingIOError:
            return
        if self._line.endswith("\n"):
            self.ready, self.serves = ready_facts(self._line), True

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Waits for the end; returns the exit code, None if it did not end in time, 0 if there was no process."""
        try:
            return 0 if self._process is None else self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def limit_files(self, size_bytes: int) -> None:
        """Limits the size of files that the process writes, until it ends; resource.RLIM_INFINITY lifts the limit."""
        if self._process is None or not self.running:
            return
        _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))

    def page(self, path: str) -> str:
        """A page of the admin server; empty if it does not answer with success."""
        return _page(f"http://{self.ready['admin']}{path}", PAGE_SECONDS) if self.ready else ""

    def last_words(self) -> str:
        """The end of the log file."""
        return self.log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """Sends SIGKILL; returns once the process has ended. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._close_pipes()
        self._process, self.serves = None, False

    def _close_pipes(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()


class EtcdNode(Node):
    """A real etcd, the only member of its cluster; it syncs its files, and keeps its command over all starts."""

    def __init__(self, name: str, host: LanHost | None, log: Path, directory: Path) -> None:
        super().__init__(name, host, log)
        self._where = f"{self.address}:{ETCD_PORT if host is not None else free_port()}"
        peer = f"http://{self.address}:0"
        self.command = [PROGRAM, *etcd_command(name, directory, f"http://{self._where}", peer, f"{name}={peer}")]

    def look(self) -> None:
        """See `Node.look`; etcd writes no ready line, so its health page is asked."""
        if not self.serves and self.running and self._health(LOOK_SECONDS):
            self.ready, self.serves = {"metadata": f"etcd://{self._where}"}, True

    def page(self, path: str) -> str:
        """The health page, for any path."""
        return self._health(PAGE_SECONDS)

    def _health(self, seconds: float) -> str:
        return _page(f"http://{self._where}/health", seconds)

    def ended_well(self, code: int) -> bool:
        """See `Node.ended_well`; etcd always ends by the signal."""
        return code in (0, -signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """See `Node.signal`; its parent process passes on SIGTERM alone, so others go to the process group."""
        if number is signal.SIGTERM:
            super().signal(number)
        else:
            self._signal_both(number)

    def kill(self) -> None:
        """See `Node.kill`; kills the process group, so that the port is free again."""
        self._signal_both(signal.SIGKILL)
        super().kill()

    def _signal_both(self, number: int) -> None:
        if self._process is not None and self.running:
            os.killpg(self._process.pid, number)


def _page(url: str, seconds: float) -> str:
    """The content of a page; empty if there is no successful answer in time."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as page:
            return str(page.read().decode())
    except OSError:
        return ""
