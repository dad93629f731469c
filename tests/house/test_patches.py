"""Planted bugs and probes hook public names: none of them patches a private name of the product."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/simulation", "testing/storms")
PRIVATE = re.compile(r"(^|.*\.)_[A-Za-z]\w*$")
PATCHES = {"patch", "setattr", "object"}
"""The last names of the functions that patch: `Patches`, `MonkeyPatch.setattr`, `patch.object`."""


def is_patch(call: ast.Call) -> bool:
    """Whether a call patches something: `patch(…)`, `patch.setattr(…)`, or the call of a new `Patches(…)`."""
    match call.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name in PATCHES
        case ast.Call(ast.Name("Patches")):
            return True
    return False


def private_patches(source: str) -> list[str]:
    """`line: the target` of each patch of a private name, or of a name of a private class; dunder names are public."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and is_patch(node):
            targets = [ast.unparse(each).strip("'\"") for each in node.args[:2]]
            if any(PRIVATE.match(target) for target in targets):
                found.append(f"{node.lineno}: {', '.join(targets)}")
    return found


def test_planted_bugs_and_probes_patch_no_private_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{patched}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for patched in private_patches(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(["hook a public name or a module's function instead:", *found])


@pytest.mark.parametrize(
    "source",
    [
        'patch.setattr(Store, "_load", late)',
        'patch(Store, "_load", late)',
        'Patches(stack)(Store, "_load", late)',
        'monkeypatch.setattr("gnomon.bookie.store._load", late)',
        'patch.setattr(_Driver, "run", late)',
        'patch(claims._Driver, "run", late)',
    ],
)
def test_a_patch_of_a_private_name_is_found(source: str) -> None:
    assert len(private_patches(source)) == 1


@pytest.mark.parametrize(
    "source",
    ['patch.setattr(Store, "load", late)', 'patch(Store, "__init__", late)', 'getattr(store, "_load")', "load(_store)"],
)
def test_other_calls_are_no_patches_of_private_names(source: str) -> None:
    assert private_patches(source) == []
