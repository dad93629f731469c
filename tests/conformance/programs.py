"""Programs that test a client."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolchains import CACHE, fetched, tool

HERE = Path(__file__).parent
PROGRAM_SECONDS = 240


def run(command: Sequence[str], given: str | None = None) -> str:
    """Runs the program; returns its standard output.

    Raises:
        AssertionError: the program failed; the text has its output.
    """
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def go_program(package: str) -> str:
    """The path of the program of a package in the folder `go`; without Go the test is skipped with the reason."""
    go = tool("go", "franz-go needs the Go toolchain")
    folder = CACHE / "go"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / (Path(package).name or "conformance")
    fetched([go, "build", "-o", str(program), package], HERE / "go", "franz-go")
    return str(program)


def node_program(name: str) -> list[str]:
    """The command that runs a file of the folder `js`; without Node.js the test is skipped with the reason."""
    node, npm = tool("node", "kafkajs needs Node.js"), tool("npm", "kafkajs comes through npm")
    folder = CACHE / "js"
    folder.mkdir(parents=True, exist_ok=True)
    for each in ("package.json", name):
        shutil.copy(HERE / "js" / each, folder)
    if not (folder / "node_modules" / "kafkajs").exists():
        fetched([npm, "install", "--no-package-lock", "--no-audit", "--no-fund"], folder, "kafkajs")
    return [node, str(folder / name)]


class Program:
    """A program that uses another library: it reads a line before each step, and prints a line of JSON after it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def step(self, given: str = "") -> object:
        """Gives the program a line; returns the result of the step.

        Raises:
            AssertionError: the program has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{given}\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the program ended with {self._process.wait()}"
        return json.loads(line)
