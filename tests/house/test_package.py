"""The package that `make package` builds: wheel, source distribution and container file, tried without the checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import_graph`: test folders are no packages

from container_file import ContainerFile
from import_graph import FLOORS, ROOT

from gnomon.runtime.settings.settings import declared_settings
from gnomon.testing import KafkaBroker

STORMS = "testing/storms/"
"""gnomon's own storms are for its own tests: no user needs them."""
DATA = {"py.typed", "broker/admin/openapi.json"}
FOUND_BY_SPARK = "pyspark_gnomon/__init__.py"
BUILD_FILES = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


def tracked(*patterns: str) -> list[str]:
    return subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def product() -> set[str]:
    """The files of the product, as the wheel names them."""
    floors = tuple(f"{floor}/" for floor in FLOORS)
    modules = {name for name in tracked("*.py") if name.startswith(floors) and not name.startswith(STORMS)}
    return {f"gnomon/{name}" for name in (modules | DATA | {"__init__.py"})} | {FOUND_BY_SPARK}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="module")
def dist(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not request.config.getoption("--wheel"):
        pytest.skip("the package is built by `make check` (pytest --wheel): building it asks PyPI for setuptools")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(["make", "package", f"DIST={out}"], cwd=ROOT, check=True)
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("gnomon-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has the wheel, without its dependencies."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True)
    return target


def test_the_wheel_holds_every_module_once_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(product())


def test_the_source_distribution_holds_the_same_and_the_files_of_the_build(dist: Path) -> None:
    (found,) = dist.glob("gnomon-*.tar.gz")
    with tarfile.open(found) as opened:
        names = [member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()]
    modules = {name.removeprefix("gnomon/") for name in product()} - {"__init__.py", "py.typed"}
    assert sorted(name for name in names if not name.startswith("gnomon.egg-info/")) == sorted(
        modules | BUILD_FILES | {"gnomon/__init__.py", "gnomon/py.typed"}
    )


def test_the_wheel_of_the_source_distribution_equals_that_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """`make package` builds the wheel from the source distribution; this one is built from a clean copy."""
    for name in tracked():
        if (ROOT / name).exists():
            copy = tmp_path / "checkout" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy, follow_symlinks=False)
    build = [sys.executable, "-m", "build", "-q", "--wheel", "--outdir", str(tmp_path), str(tmp_path / "checkout")]
    subprocess.run(build, check=True)
    (other,) = tmp_path.glob("gnomon-*.whl")
    assert contents(wheel) == contents(other)


def test_the_installed_wheel_starts_a_broker(installed: Path, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import gnomon; assert gnomon.__file__.startswith(sys.path[0]), gnomon.__file__\n"
        "from gnomon.testing import KafkaBroker\n"
        "with KafkaBroker() as broker: print(broker.bootstrap_servers)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("127.0.0.1:")


def test_a_fixture_runs_the_broker_of_another_installation(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    with KafkaBroker(command=(sys.executable, "-P", "-m", "gnomon.cli.child")) as broker:
        opened = Path(f"/proc/{broker.pid}/environ").read_text().split("\0")
        assert f"PYTHONPATH={installed}" in opened
        assert broker.stop() == 0


def test_the_container_file_lies_beside_the_wheel_that_it_installs(dist: Path, wheel: Path) -> None:
    assert (dist / "Dockerfile").read_bytes() == (ROOT / "Dockerfile").read_bytes()
    (copied,) = [text for name, text in ContainerFile().instructions if name == "COPY"]
    assert list(dist.glob(copied.split()[0])) == [wheel]


def test_the_container_runs_as_a_user_that_owns_the_volume() -> None:
    file = ContainerFile()
    user, volume = file.the("USER"), file.the("VOLUME")
    assert user not in ("root", "0")
    assert re.search(rf"useradd .*\b{user}\b", file.the("RUN"))
    assert re.search(rf"install --directory --owner {user} .*{volume}$", file.the("RUN"))
    assert file.variables["GNOMON_DATA_DIR"] == volume
    names = [name for name, _ in file.instructions]
    assert names.index("RUN") < names.index("USER") < names.index("VOLUME")


def test_the_variables_of_the_container_are_settings_and_its_ports_their_defaults() -> None:
    file, settings = ContainerFile(), declared_settings()
    own = {one.variable for one in settings.values()}
    kafkas = {"GNOMON_KAFKA__LISTENERS", "GNOMON_KAFKA__ADVERTISED_LISTENERS"}
    assert set(file.variables) <= own | kafkas
    ports = [settings[f"broker.{name}_port"].default for name in ("kafka", "native", "admin")]
    assert file.the("EXPOSE").split() == [str(port) for port in ports]


def test_the_python_of_the_container_is_one_that_gnomon_takes() -> None:
    file = ContainerFile()
    required = re.search(r'requires-python = ">=(\S+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert required is not None
    assert file.the("ARG") == f"PYTHON={required[1]}"
    assert "${PYTHON}" in file.the("FROM")


def test_the_containers_command_serves_on_its_ports_and_ends_at_its_stop_signal(
    installed: Path, tmp_path: Path
) -> None:
    alone = ["unshare", "--net", "--"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a network namespace takes root: without one the container's ports may be in use")
    script = Path(__file__).with_name("container_run.py")
    done = subprocess.run(
        [*alone, sys.executable, str(script), str(installed), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "ready kafka=0.0.0.0:9092 admin=0.0.0.0:8080" in done.stdout
