"""The load generators: compiled from C at first use, run as processes, their figures read from standard output."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.workspace import SOURCES

Figures = Mapping[str, float]

HEADER_OF_SYSTEM = Path("/usr/include/librdkafka/rdkafka.h")
POLL_SECONDS = 0.05


class GeneratorUnavailable(Exception):
    """Something is missing on this machine; the text says what, and how to get it."""


class GeneratorFailed(Exception):
    """A generator met an error in the broker's answers, or the broker died; the text says which."""


@dataclass(frozen=True, slots=True)
class Generator:
    """A compiled load generator."""

    program: Path

    def run(self, *arguments: object, timeout_seconds: float, server_alive: Callable[[], bool]) -> Figures:
        """The figures of one run.

        Args:
            arguments: mode and arguments, as the head of the C file lists them.
            timeout_seconds: time limit of the generator.
            server_alive: called while waiting, so that a dead server fails the run at once.

        Raises:
            GeneratorFailed: an error code in a response, a record lost or out of place, a dead server, or no end.
        """
        command = [str(self.program), *map(str, arguments)]
        mode = f"{self.program.name.partition('-')[0]} {arguments[0]}"
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as child:
            try:
                output, complaint = _communicate(child, timeout_seconds, server_alive)
            except TimeoutError as error:
                raise GeneratorFailed(f"{mode}: {error}") from None
            finally:
                child.kill()
        if child.returncode:
            reason = " / ".join(complaint.strip().splitlines()[-3:]) or f"exit status {child.returncode}"
            raise GeneratorFailed(f"{mode}: {reason}")
        figures: dict[str, float] = json.loads(output)
        return figures


def _communicate(
    child: subprocess.Popen[str], timeout_seconds: float, server_alive: Callable[[], bool]
) -> tuple[str, str]:
    waited = 0.0
    while True:
        try:
            return child.communicate(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            waited += POLL_SECONDS
        if not server_alive():
            raise TimeoutError("the server ended during the run")
        if waited > timeout_seconds:
            raise TimeoutError(f"no end after {timeout_seconds:.0f} s")


@dataclass(frozen=True, slots=True)
class Generators:
    """`raw` needs only a C compiler; `rdkafka` is the program, or the reason why it is missing."""

    raw: Generator
    _rdkafka: Generator | GeneratorUnavailable

    @classmethod
    def build(cls, cache: Path) -> Generators:
        """Compiles what is not in the cache yet.

        Raises:
            GeneratorUnavailable: there is no C compiler.
        """
        raw = _compile(cache, "raw.c", [])
        try:
            return cls(raw, _compile(cache, "rdkafka.c", [*_librdkafka(), "-lpthread", "-lm"]))
        except GeneratorUnavailable as reason:
            return cls(raw, reason)

    @property
    def rdkafka(self) -> Generator:
        """Raises GeneratorUnavailable if no librdkafka can be linked."""
        if isinstance(self._rdkafka, GeneratorUnavailable):
            raise self._rdkafka
        return self._rdkafka


def _librdkafka() -> list[str]:
    """Linker arguments: the library inside confluent-kafka's wheel, or else the system's."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is not None and package.origin is not None:
        bundled = sorted((Path(package.origin).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
        if bundled:
            return [str(bundled[0]), f"-Wl,-rpath,{bundled[0].parent}"]
    if HEADER_OF_SYSTEM.exists():
        return ["-lrdkafka"]
    raise GeneratorUnavailable(
        "no librdkafka: this confluent-kafka was built without a bundled one; install librdkafka-dev"
    )


def _compile(cache: Path, source: str, libraries: list[str]) -> Generator:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise GeneratorUnavailable("no C compiler (gcc or cc): the load generators are written in C")
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra"]
    inputs = [SOURCES / source, *sorted(SOURCES.glob("*.h"))]
    digest = hashlib.sha256(b"\0".join([repr((flags, libraries)).encode(), *(path.read_bytes() for path in inputs)]))
    program = cache / f"{Path(source).stem}-{digest.hexdigest()[:16]}"
    if not program.exists():
        command = [compiler, *flags, "-o", f"{program}.new", str(SOURCES / source), *libraries]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise GeneratorUnavailable(f"{source} does not compile here: {done.stderr.strip().splitlines()[-1]}")
        Path(f"{program}.new").rename(program)
    return Generator(program)
