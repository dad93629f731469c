"""The import graph of the product, with imports for types: floors, wings, and the circles in it.

    python tests/house/import_graph.py          # the wings, each with the wings that it imports

Imports inside functions count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli", "testing")
"""The floors from the bottom up: each may import those before it."""


def module_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a file below `root`, without `gnomon.`."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports; for a name `from` a module both the module and the name in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None, "an absolute import names its module"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Every module of the floors below `root`, with the modules that it imports."""
    paths = [path for floor in FLOORS for path in sorted((root / floor).rglob("*.py"))]
    modules = {module_of(path, root): path for path in paths}
    found = {}
    for module, path in modules.items():
        named = {name.removeprefix("gnomon.") for name in imports(path) if name.startswith("gnomon.")}
        found[module] = (named & set(modules)) - {module}
    return found


def wing(module: str) -> str:
    """The folder of a module below its floor, with the folders inside it; a loose file is a wing of its own."""
    return ".".join(module.split(".")[:2])


def wings(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph between folders."""
    found: dict[str, set[str]] = {}
    for module, imported in modules.items():
        found.setdefault(wing(module), set()).update(map(wing, imported))
    return {name: imported - {name} for name, imported in found.items()}


def circles(modules: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """The sets of modules that reach each other, each in order of name (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for imported in sorted(modules[module]):
            if imported not in index:
                visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in stack:
                low[module] = min(low[module], index[imported])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for module in sorted(modules):
        if module not in index:
            visit(module)
    return found


def upward(modules: Mapping[str, set[str]]) -> list[str]:
    """The imports from a floor to a higher one, as text."""
    return [
        f"{module} imports {name}"
        for module, imported in modules.items()
        for name in sorted(imported)
        if FLOORS.index(name.partition(".")[0]) > FLOORS.index(module.partition(".")[0])
    ]


def reaching(modules: Mapping[str, set[str]], begins: Sequence[str], ends: Collection[str]) -> list[str]:
    """The shortest chain of imports from each of `begins` to one of `ends`, as text; none where there is no chain."""
    found = []
    for begin in begins:
        chains = {begin: begin}
        waiting = [begin]
        for module in waiting:
            if module in ends:
                found.append(chains[module])
                break
            for imported in sorted(modules[module]):
                if imported not in chains:
                    chains[imported] = f"{chains[module]} imports {imported}"
                    waiting.append(imported)
    return found


if __name__ == "__main__":
    for name, imported in sorted(wings(graph()).items()):
        print(f"{name:32} {' '.join(sorted(imported))}")
