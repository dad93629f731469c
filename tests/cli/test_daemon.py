"""Daemons that run out of file descriptors, ports or room for logs: processes, since these limits are per process."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

GNOMON = [sys.executable, "-m", "gnomon.cli.main"]
COMMAND = [*GNOMON, "standalone"]
PORTS = ("--kafka-port", "0", "--native-port", "0", "--admin-port", "0")
SECONDS_MAX = 30

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Daemon:
    """A standalone broker."""

    def __init__(self, data: Path, stderr: int, before: Sequence[str]) -> None:
        command = [*before, *COMMAND, *PORTS, "--data-dir", str(data)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        ready = dict(re.findall(r"(\w+)=(\S+)", self.process.stdout.readline()))
        self.admin = ready["admin"]
        self._kafka = ready["kafka"].split(":")

    def skip_to(self, text: str) -> bool:
        """Reads the log up to a line with this text, past the long turns of a slow machine; False at the end."""
        assert self.process.stderr is not None
        while line := self.process.stderr.readline():
            if text in line:
                return True
        return False

    def connect(self) -> socket.socket:
        """Connects as a Kafka client."""
        return socket.create_connection((self._kafka[0], int(self._kafka[1])), SECONDS_MAX)

    def speak_http(self) -> None:
        """Sends HTTP to Kafka's port, which the daemon logs; returns when the daemon has closed the connection."""
        with self.connect() as wrong:
            wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert wrong.recv(1) == b""

    def page(self, path: str) -> tuple[int, str]:
        """The status and the text of a page."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=SECONDS_MAX) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def leave_descriptors(self, count: int) -> None:
        """Limits the daemon to this many more file descriptors."""
        taken = set(map(int, os.listdir(f"/proc/{self.process.pid}/fd")))
        free = [number for number in range(len(taken) + count + 1) if number not in taken]
        _, most = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (free[count], most))

    def end(self) -> str:
        """Ends the daemon, which must exit with 0; returns its log."""
        self.process.terminate()
        _, stderr = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == 0, stderr
        return stderr


@contextmanager
def daemon(data: Path, stderr: int = subprocess.PIPE, before: Sequence[str] = ()) -> Iterator[Daemon]:
    started = Daemon(data, stderr, before)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def lines_of(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def lines_dropped(broker: Daemon) -> float:
    (line,) = re.findall(r"^gnomon_log_lines_dropped_total (\S+)$", broker.page("/metrics")[1], re.MULTILINE)
    return float(line)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_connection_waits_for_a_free_file_descriptor_and_is_then_served(tmp_path: Path) -> None:
    with daemon(tmp_path) as broker:
        broker.leave_descriptors(0)
        waiting = broker.connect()
        assert broker.skip_to("Too many open files; trying again every 0.1 s")
        broker.leave_descriptors(100)
        waiting.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert waiting.recv(1) == b""
        waiting.close()
        assert broker.page("/readyz") == (200, "ok\n")
        assert "connection_refused" in [line["event"] for line in lines_of(broker.end())]


def test_a_page_that_lacks_a_file_descriptor_does_not_harm_later_pages(tmp_path: Path) -> None:
    with daemon(tmp_path) as broker:
        broker.leave_descriptors(1)
        with suppress(OSError):
            broker.page("/metrics")
        broker.leave_descriptors(100)
        assert broker.page("/readyz?verbose")[0] == 200
        assert "gnomon_produce_bytes" in broker.page("/metrics")[1]
        assert broker.page("/admin/v2/openapi.json")[0] == 200
        assert "does not exist" in broker.page("/admin/v2/persistent/public/default/t/stats")[1]
        broker.end()


def test_a_page_waits_for_a_free_file_descriptor_and_is_then_served(tmp_path: Path) -> None:
    with daemon(tmp_path) as broker:
        broker.leave_descriptors(0)
        host, port = broker.admin.split(":")
        with socket.create_connection((host, int(port)), 1) as waiting:
            waiting.sendall(f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            with pytest.raises(TimeoutError):
                waiting.recv(1)
            waiting.settimeout(SECONDS_MAX)
            broker.leave_descriptors(100)
            assert waiting.recv(12) == b"HTTP/1.1 200"
        broker.end()


@pytest.mark.parametrize("command", ["metadata", "bookie --name b --metadata 127.0.0.1:1"])
def test_a_directory_in_use_is_reported_before_a_port_in_use(
    inside: Run, tmp_path: Path, taken_port: int, command: str
) -> None:
    with open(tmp_path / "LOCK", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = inside(*command.split(), "--data-dir", tmp_path, "--port", taken_port, "--admin-port", taken_port)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1), done.stderr
    assert "is in use by process" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "standalone --admin-port 0 --native-port 0 --kafka-port",
        "standalone --admin-port 0 --kafka-port 0 --native-port",
        "metadata --admin-port 0 --port",
        "bookie --name b --metadata 127.0.0.1:1 --admin-port 0 --port",
        "cluster up --kafka-port",
        "cluster up --metadata-port",
    ],
)
def test_a_command_that_finds_its_port_taken_does_not_claim_the_directory(
    inside: Run, tmp_path: Path, taken_port: int, command: str
) -> None:
    done = inside(*command.split(), taken_port, "--data-dir", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert f":{taken_port}: " in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"LOCK"}


@pytest.mark.parametrize("command", [("bookie", "--name", "b"), ("broker", "--id", "7")], ids=["bookie", "broker"])
def test_a_daemon_that_waits_for_the_metadata_ends_at_sigterm(tmp_path: Path, command: tuple[str, ...]) -> None:
    place = ("--data-dir", str(tmp_path)) if command[0] == "bookie" else ()
    arguments = [*command, *place, "--metadata", "127.0.0.1:1", "--admin-port", "0"]
    with subprocess.Popen([*GNOMON, *arguments], stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "no answer yet from the metadata" in waiting.stderr.readline()
        waiting.terminate()
        assert waiting.wait(3) == 0
    assert not (tmp_path / "FORMAT").exists()


def test_log_lines_are_dropped_and_counted_when_the_disk_is_full(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full, daemon(tmp_path, full.fileno()) as broker:
        for _ in range(2):
            broker.speak_http()
        assert lines_dropped(broker) >= 3  # the start, and two refused connections; a slow machine adds long turns
        broker.end()


def test_a_daemon_survives_a_broken_log_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as log, daemon(tmp_path, log.fileno()) as broker:
        os.close(reader)
        for _ in range(2):
            broker.speak_http()
        assert broker.page("/readyz")[0] == 200
        broker.end()


def test_a_daemon_survives_a_closed_standard_error_and_gives_its_number_to_no_socket(tmp_path: Path) -> None:
    with daemon(tmp_path, before=["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]) as broker:
        for _ in range(2):
            broker.speak_http()
        assert lines_dropped(broker) >= 3  # the start, and two refused connections; a slow machine adds long turns
        assert {os.readlink(f"/proc/{broker.process.pid}/fd/{number}") for number in (0, 2)} == {"/dev/null"}
        broker.end()
