"""Tools that clients of other projects need beside PyPI: without them the tests are skipped with the reason."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "conformance"
FETCH_SECONDS = 600


def tool(name: str, what_for: str) -> str:
    """The path of a program; without it the test is skipped with the reason."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on the path: {what_for}")
    return found


def fetched(command: Sequence[str], folder: Path, what: str) -> None:
    """Runs the command that fetches a client; if it fails, the test is skipped."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS)
    if done.returncode:
        pytest.skip(f"{what} could not be fetched: {(done.stdout + done.stderr).strip()[-400:]}")


@pytest.fixture(scope="session")
def java() -> list[str]:
    """The command that runs a program on Kafka's jars."""
    found = tool("java", "Kafka's Java client and console tools need a JVM, 17 or newer")
    jars = CACHE / "java"
    if not list(jars.glob("kafka-tools-*.jar")):
        maven = tool("mvn", "Kafka's jars come through Maven")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        fetched([maven, "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), *goal], HERE, "Kafka's jars")
    quiet = jars / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n")
    return [found, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", f"-Dlog4j2.configurationFile={quiet}"]
