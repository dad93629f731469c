"""The built wheel, installed in a folder of its own and tried without the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import_graph`: test folders are no packages

from import_graph import FLOORS, ROOT

STORMS = "testing/storms/"
"""gnomon's own storms are for its own tests: no user needs them."""


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not request.config.getoption("--wheel"):
        pytest.skip("the wheel is built by `make check` (pytest --wheel): building it asks PyPI for setuptools")
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "-q", "--wheel", "--outdir", str(out), str(ROOT)], check=True)
    return next(out.glob("gnomon-*.whl"))


def test_the_wheel_holds_every_module_once(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")]
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    floors = tuple(f"{floor}/" for floor in FLOORS)
    product = [name for name in tracked.splitlines() if name.startswith(floors)]
    expected = {f"gnomon/{name}" for name in product if not name.startswith(STORMS)} | {"gnomon/__init__.py"}
    assert sorted(names) == sorted(expected)
    assert {"gnomon/py.typed", "gnomon/broker/admin/openapi.json"} <= set(zipfile.ZipFile(wheel).namelist())


def test_the_installed_wheel_starts_a_broker(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True)
    script = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "import gnomon; assert gnomon.__file__.startswith(sys.path[0]), gnomon.__file__\n"
        "from gnomon.testing import KafkaBroker\n"
        "with KafkaBroker() as broker: print(broker.bootstrap_servers)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("127.0.0.1:")
