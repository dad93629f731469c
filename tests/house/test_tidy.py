"""The house style that a machine can check (CONTRIBUTING.md, "The rules of the house")."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli", "testing", "bench")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
FOLDER_FILES_MAX = 17
EMPTY_NAMES = re.compile(r"(Manager|Util|Utils|Helper|Helpers|Impl|Base)$")
ONE_MEANING = {"InvalidCall", "MalformedMessage", "UnreadableRecord", "Watcher"}
"""Names with one meaning in two protocols: an invalid call, a malformed message, a record that cannot be read; and the
watchers of three metadata stores."""
KAFKA_NAMES = "wire/kafka/messages/"
"""Classes there have the names of Kafka's schemas, some of which are nested in several messages."""
EMPTY_FILES = {"common.py", "utils.py", "util.py", "helpers.py", "misc.py"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if name.endswith(suffixes) and not (ROOT / name).is_symlink()]


def product() -> list[Path]:
    return [path for path in tracked(".py") if path.relative_to(ROOT).parts[0] in FOLDERS]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_functions_stay_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for path in product()
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_files_stay_short() -> None:
    long = [str(path.relative_to(ROOT)) for path in product() if len(path.read_text().splitlines()) > FILE_LINES_MAX]
    assert long == []


def test_folders_hold_few_files() -> None:
    held = Counter(str(path.parent.relative_to(ROOT)) for path in product() if path.name != "__init__.py")
    assert {folder: count for folder, count in held.items() if count > FOLDER_FILES_MAX} == {}


def test_no_file_or_class_has_an_empty_name_such_as_util() -> None:
    wrong = [str(path.relative_to(ROOT)) for path in product() if path.name in EMPTY_FILES]
    wrong += [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in product()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and EMPTY_NAMES.search(node.name)
    ]
    assert wrong == []


def test_no_class_name_has_two_meanings() -> None:
    places: dict[str, list[str]] = {}
    for path in product():
        where = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not where.startswith(KAFKA_NAMES):
                places.setdefault(node.name.lstrip("_"), []).append(f"{where}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in ONE_MEANING} == {}


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in product()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_nothing_is_left_unfinished() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".py", ".toml", ".c", ".h", ".sh")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNFINISHED.search(line) and path.name != "test_tidy.py"
    ]
    assert wrong == []


def test_every_suppressed_warning_has_a_reason() -> None:
    bare = re.compile(r"#\s*(noqa(: ?[A-Z0-9, ]+)?|type: ignore(\[[a-z, -]+\])?)\s*$")
    allowed = re.compile(r"#\s*(noqa: ?[A-Z]+[0-9]+ - \S|type: ignore\[[a-z, -]+\])")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in product()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line) and not allowed.search(line)
    ]
    assert wrong == []


def test_no_link_leads_out_of_the_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = [ROOT / name for name in listed.splitlines() if (ROOT / name).is_symlink()]
    assert links, "the packages of gnomon are links"
    assert [str(link) for link in links if not link.resolve().is_relative_to(ROOT)] == []


def test_every_package_is_built_into_the_wheel() -> None:
    """A package that is missing from `packages` silently vanishes from wheels."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = set(re.findall(r'^    "(gnomon[a-z._]*)",$', text, re.M))
    found = {
        "gnomon." + ".".join(path.parent.relative_to(ROOT).parts)
        for path in product()
        if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] != "bench"
    }
    storms = {name for name in found if name.startswith("gnomon.testing.storms")}
    assert storms, "the storms are in testing/storms"
    assert found - storms <= listed
    assert not storms & listed, "gnomon's own storms are for its own tests: no user needs them"
