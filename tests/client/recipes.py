"""The recipes of the guides: programs in `docs/examples`, which tests run as they are."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def recipe(name: str) -> Any:
    """The module of a program."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
