"""The house style that a machine can check (docs/ARCHITECTURE.md, "Style")."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("wire", "runtime", "metadata", "bookie", "broker", "cli", "testing", "bench")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
EMPTY_NAMES = re.compile(r"(Manager|Util|Utils|Helper|Helpers|Impl|Base)$")
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


def test_files_stay_one_noun() -> None:
    long = [str(path.relative_to(ROOT)) for path in product() if len(path.read_text().splitlines()) > FILE_LINES_MAX]
    assert long == []


def test_no_name_is_empty() -> None:
    wrong = [str(path.relative_to(ROOT)) for path in product() if path.name in EMPTY_FILES]
    wrong += [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in product()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and EMPTY_NAMES.search(node.name)
    ]
    assert wrong == []


def test_every_module_says_what_it_is() -> None:
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


def test_every_excuse_has_its_reason() -> None:
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
    assert found <= listed
