"""A store of keys and values as one process, under the load of a program of its own."""

from __future__ import annotations

import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.generator import Figures, GeneratorFailed
from bench.stage import Stage
from bench.system import Program

READY_SECONDS = 30.0
LOOK_SECONDS = 0.02
LOAD_SECONDS_MAX = 120
FIRST_OPERATIONS = 100
"""Operations of a client in the run that finds the rate."""


@dataclass(frozen=True)
class KeyValueStore(Program):
    """A store that keeps what it has acknowledged on disk, synced."""

    name: ClassVar[str]
    cache: Path

    @abstractmethod
    def puts(self, stage: Stage, clients: int, operations: int) -> Figures:
        """Rate and latencies of `operations` puts of 100 bytes into 10,000 keys, each client with one at a time."""

    @abstractmethod
    def gets(self, stage: Stage, clients: int, operations: int) -> Figures:
        """The same of linearizable gets."""


Operations = Callable[[KeyValueStore, Stage, int, int], Figures]


def store_load(operations: Operations, clients: int) -> Callable[[Stage], Figures]:
    """A load of the usual length: a first run finds the rate."""

    def measure(stage: Stage) -> Figures:
        store = stage.system
        assert isinstance(store, KeyValueStore), "another system has other loads"
        first = operations(store, stage, clients, FIRST_OPERATIONS * clients)
        return operations(store, stage, clients, max(clients, int(first["rate"] * stage.scale.seconds)))

    return measure


def warm_up_store(stage: Stage) -> Figures:
    """Waits until a store takes connections, and puts something."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", stage.server.port), 1).close()
            break
        except OSError:
            if not stage.server.process.alive or time.monotonic() > deadline:
                raise GeneratorFailed(f"{stage.system.name} did not start: {stage.server.process.log_tail()}") from None
            time.sleep(LOOK_SECONDS)
    return store_load(lambda store, *rest: store.puts(*rest), 10)(stage)


def output_of(command: Sequence[str]) -> str:
    """The standard output of a load program.

    Raises:
        GeneratorFailed: it failed, or did not end.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise GeneratorFailed(f"{Path(command[0]).name} did not end within {LOAD_SECONDS_MAX} s") from None
    if done.returncode:
        raise GeneratorFailed(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout
