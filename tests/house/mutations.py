"""Changes the pure modules one expression at a time, and lists the changes that no test notices (`make mutations`).

mutmut makes the changes and runs, for each, the tests that execute the changed function. It works on a copy of the
repository below .cache/mutations, because the links under gnomon/ would lead to the unchanged modules. The tests are
unit and property tests; storms would take hours.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPY = ROOT / ".cache" / "mutations"
EXPLANATIONS = Path(__file__).with_name("survivors.toml")
SHOW = """
import contextlib, io
from mutmut.__main__ import results, show
listed = io.StringIO()
with contextlib.redirect_stdout(listed):
    results.callback(False)
for line in listed.getvalue().splitlines():
    show.callback(line.strip().partition(": ")[0])
"""
FLOORS = ("bookie", "broker", "cli", "client", "log", "metadata", "runtime", "spark", "testing", "wire")
TARGETS = {
    "bookie": (
        "digest entry placement record ledgers/writer ledgers/reader ledgers/recovery",
        "bookie",
        "digest entry placement record writer reader recovery",
    ),
    "partition": (
        "appends state log producers refused_batches",
        "broker/partition",
        "appends log log_limits producers refused_batches state partition",
    ),
}
"""By name: the modules that are changed, their folder, and the tests that are to notice it."""


def prepare(target: str) -> None:
    """Copies the repository, with real folders under gnomon/ and the settings of mutmut."""
    modules, folder, tests = TARGETS[target]
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, COPY / "gnomon" / floor, ignore=ignored)
    for path in (ROOT / "gnomon").glob("*.py*"):
        shutil.copy(path, COPY / "gnomon" / path.name)
    shutil.copytree(ROOT / "tests", COPY / "tests", ignore=ignored)
    settings = {
        "source_paths": ["gnomon"],
        "only_mutate": [f"gnomon/{folder}/{module}.py" for module in modules.split()],
        "pytest_add_cli_args_test_selection": [f"tests/{folder}/test_{test}.py" for test in tests.split()],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist"],
    }
    lines = "\n".join(f"{name} = {value!r}" for name, value in settings.items())
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (COPY / "pyproject.toml").write_text(f"{project}\n[tool.mutmut]\n{lines}\n", encoding="utf-8")


def survivors() -> Iterator[tuple[str, str]]:
    """The changes that no test noticed: the changed function, and the lines before and after."""
    ran = subprocess.run([sys.executable, "-c", SHOW], cwd=COPY, stdout=subprocess.PIPE, text=True, check=True)
    for found in filter(None, ran.stdout.split("# gnomon.")[1:]):
        name, *diff = found.splitlines()
        if not name.endswith((": survived", ": no tests")):
            continue
        function = re.sub(r"x_|xǁ|ǁ|__mutmut_\d+: .*", lambda mark: "." if mark[0] == "ǁ" else "", name)
        changed = [
            f"{line[0]} {line[1:].strip()}" for line in diff if line[:1] in "-+" and line[:3] not in ("---", "+++")
        ]
        yield function, "\n".join(changed)


def main() -> int:
    """Prints the survivors that survivors.toml does not explain, and the explanations that none needs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    prepare(given.target)
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(given.processes)]
    ran = subprocess.run(command, cwd=COPY, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        print(ran.stdout)
        return ran.returncode
    print(ran.stdout.splitlines()[-1])
    explained = {
        (each["function"], change.strip())
        for each in tomllib.loads(EXPLANATIONS.read_text(encoding="utf-8")).get(given.target, ())
        for change in each["changes"]
    }
    found = set(survivors())
    for function, change in sorted(found - explained):
        print(f"\nno test notices, and no reason is given: {function}\n{change}")
    for function, change in sorted(explained - found):
        print(f"\nexplained, but not a survivor any more: {function}\n{change}")
    print(f"{len(found)} changes survive; {len(found & explained)} of them are explained")
    return 1 if found != explained else 0


if __name__ == "__main__":
    sys.exit(main())
