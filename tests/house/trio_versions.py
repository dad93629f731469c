"""Tries the core with the lowest Trio that pyproject.toml allows, and with the newest on PyPI (`make trio-versions`).

Each version gets a fresh environment with the core's dependencies. The tests are those of the runtime, of daemons as
processes and of a broker that is killed: none of them uses the simulation, which needs private names of one Trio.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/runtime",
    "tests/cli/test_daemon.py",
    "tests/cli/test_standalone.py",
    "tests/cli/test_loaded_modules.py",
    "tests/crash",
)
TOOLS = ("pytest>=8.3", "hypothesis>=6.120", "httpx2>=2.16", "psutil>=6.0")


def dependencies() -> list[str]:
    """The core's dependencies, as pyproject.toml names them."""
    named: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return named


def lowest_trio(named: list[str]) -> str:
    """The version after `>=` in the dependency on Trio."""
    (bound,) = [one for one in named if one.startswith("trio")]
    name, _, version = bound.partition(">=")
    assert name == "trio", f"{bound!r}: the core bounds Trio from below alone"
    assert version.replace(".", "").isdigit(), f"{bound!r}: the core bounds Trio from below alone"
    return version


def simulated(path: Path) -> bool:
    """Whether a test uses the simulation itself."""
    return "gnomon.testing.simulation" in path.read_text(encoding="utf-8")


def pytest_arguments() -> list[str]:
    """The arguments of pytest for `TESTS`, without the tests that use the simulation."""
    paths = [
        path for name in TESTS for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    skipped = [f"--ignore={path.relative_to(ROOT)}" for path in sorted(paths) if simulated(path)]
    return [*TESTS, *skipped]


def try_trio(wanted: str) -> int:
    """Runs the tests with the Trio that pip takes for `wanted`; returns pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="gnomon-trio-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "-q", "--upgrade", *dependencies(), *TOOLS, wanted]
        subprocess.run(pip, check=True)
        version = subprocess.run([python, "-c", "import trio; print(trio.__version__)"], capture_output=True, text=True)
        print(f"{wanted}: Trio {version.stdout.strip()}", flush=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pytest = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "gnomon.testing.plugin",
            *pytest_arguments(),
        ]
        return subprocess.run(pytest, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    codes = [try_trio(wanted) for wanted in (f"trio=={lowest_trio(dependencies())}", "trio")]
    sys.exit(max(codes))
