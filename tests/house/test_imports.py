"""The rules of the house: who may import whom (docs/ARCHITECTURE.md, "Floors")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ("wire", "runtime", "metadata", "bookie", "broker", "cli", "testing")
"""From the bottom up: each may import those before it."""

PURE = (
    "wire",
    "metadata/messages.py",
    "metadata/draft.py",
    "metadata/state.py",
    "metadata/records.py",
    "metadata/etcd_json.py",
    "bookie/digest.py",
    "bookie/entry.py",
    "bookie/placement.py",
    "bookie/record.py",
    "bookie/writer.py",
    "bookie/reader.py",
    "bookie/recovery.py",
    "broker/admin/names.py",
    "broker/leadership.py",
    "broker/partition/appends.py",
    "broker/partition/cut.py",
    "broker/partition/entry.py",
    "broker/partition/log.py",
    "broker/partition/producers.py",
    "broker/partition/refused_batches.py",
    "broker/partition/segment_record.py",
    "broker/shadow/image.py",
    "broker/shadow/outbox.py",
    "broker/shadow/stats.py",
    "broker/shadow/window.py",
    "broker/groups/group.py",
    "broker/subscriptions/dlsn.py",
    "broker/subscriptions/cursor.py",
    "broker/subscriptions/runs.py",
    "broker/subscriptions/subscription.py",
    "broker/subscriptions/cohort.py",
    "broker/subscriptions/key_slots.py",
    "broker/subscriptions/dispatcher.py",
    "broker/subscriptions/record.py",
    "broker/subscriptions/record_changes.py",
    "broker/kafka/connection.py",
    "broker/kafka/exchange.py",
    "broker/kafka/fetch_sessions.py",
    "broker/kafka/request_memory.py",
)
"""Modules that decide and do nothing: no Trio, no clock, no disk."""
NOT_PURE = {"trio", "lmdb", "time", "os", "socket", "threading", "asyncio", "random"}


def sources() -> Iterator[Path]:
    for floor in FLOORS:
        yield from sorted((ROOT / floor).rglob("*.py"))


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module, and whether the import is for types alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in typing_only) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", id(node) in typing_only))
    return found


def test_imports_run_downward_only() -> None:
    wrong = []
    for path in sources():
        floor = path.relative_to(ROOT).parts[0]
        for name, _ in imports(path):
            if name.startswith("gnomon."):
                imported = name.split(".")[1]
                if FLOORS.index(imported) > FLOORS.index(floor):
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_pure_modules_touch_nothing_outside() -> None:
    wrong = []
    for path in sources():
        relative = str(path.relative_to(ROOT))
        if not any(relative == pure or relative.startswith(f"{pure}/") for pure in PURE):
            continue
        for name, typing_only in imports(path):
            if name.split(".")[0] in NOT_PURE and not typing_only and name != "random":
                wrong.append(f"{relative} imports {name}")
    assert wrong == []


def test_every_module_named_pure_exists() -> None:
    assert [pure for pure in PURE if not (ROOT / pure).exists()] == []


def test_no_two_modules_import_each_other() -> None:
    graph = {}
    for path in sources():
        module = "gnomon." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[module] = {name for name, typing_only in imports(path) if not typing_only}
    seen: dict[str, int] = {}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        if seen.get(module) == 2:
            return
        if module in trail:
            pytest.fail("import cycle: " + " -> ".join((*trail[trail.index(module) :], module)))
        for imported in sorted(graph.get(module, ())):
            if imported in graph:
                visit(imported, (*trail, module))
        seen[module] = 2

    for module in graph:
        visit(module, ())


def test_the_broker_sees_storage_only_through_its_clients() -> None:
    clients = {
        "gnomon.metadata.client",
        "gnomon.metadata.cluster_id",
        "gnomon.metadata.follower",
        "gnomon.bookie.ledger",
        "gnomon.bookie.errors",
        "gnomon.bookie.ids",
        "gnomon.bookie.record",
    }
    wrong = []
    for path in sorted((ROOT / "broker").rglob("*.py")):
        if path.name in ("standalone.py", "stores.py", "node.py"):  # build a node, with all that is in it
            continue
        for name, _ in imports(path):
            if name.startswith(("gnomon.metadata", "gnomon.bookie")) and name not in clients:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []
