"""Tools that tests need beside PyPI: without them the tests are skipped with the reason."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / ".cache" / "conformance"
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


def jars(project: Path, what: str) -> Path:
    """The folder with the jars of a Maven project; without Maven the test is skipped with the reason.

    Args:
        project: the folder of its pom.xml.
    """
    into = CACHE / project.name
    if not list(into.glob("*.jar")):
        maven = tool("mvn", f"{what} come through Maven")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
        fetched([maven, "-q", "-B", "-f", str(project / "pom.xml"), *goal], project, what)
    return into
