"""Fixtures that run the command line, in its own process or in that of the tests, and a broker that tests share."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from gnomon.cli import cluster_metadata
from gnomon.cli.main import main
from gnomon.testing import KafkaBroker

GNOMON = [sys.executable, "-m", "gnomon.cli.main"]
SECONDS_MAX = 60

_SEPARATE: dict[str, Any] = (
    {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
)  # click up to 8.1 mixes the streams

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(**variables: str) -> dict[str, str]:
    """The environment of this process without gnomon's settings and the user's profiles, and with these variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    return {**inherited, "XDG_CONFIG_HOME": "/nonexistent", **variables}


@pytest.fixture(scope="session")
def gnomon() -> Run:
    """Runs `gnomon` with these arguments to its end."""

    def run(*arguments: object, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*GNOMON, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            env=environment(**variables),
        )

    return run


@pytest.fixture(scope="session")
def invoke() -> Callable[..., Result]:
    """Runs `gnomon` in this process; its standard input has a file descriptor, as in a shell."""

    def run(given: list[str], stdin: bytes, variables: dict[str, str] | None = None) -> Result:
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            return CliRunner(**_SEPARATE).invoke(main, given, input=file, env=variables)

    return run


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Result], tmp_path: Path) -> Run:
    """Runs `gnomon` in this process, which is faster than a new one; it hardly waits for metadata that is away."""
    monkeypatch.setattr(cluster_metadata, "ANSWER_SECONDS", 0.2)
    for name in os.environ:
        if name.startswith("GNOMON_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*arguments: object, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        given = list(map(str, arguments))
        at_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            result = invoke(given, stdin.encode(), variables)
        finally:
            signal.signal(signal.SIGTERM, at_sigterm)  # `consume` installs a handler of its own
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(given, result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(settings={"num.partitions": 2, "offsets.topic.num.partitions": 2}) as broker:
        yield broker


@pytest.fixture
def ask(inside: Run, broker: KafkaBroker) -> Run:
    """Runs `gnomon` in this process, aimed at the broker."""

    def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return inside(*arguments, stdin=stdin, GNOMON_BOOTSTRAP_SERVER=broker.bootstrap_servers)

    return run
