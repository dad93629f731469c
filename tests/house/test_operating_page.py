"""docs/operating.md names every metric and every log event, as the source has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gnomon.broker.topic_metrics import CollectedTopics
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.world import CommitCounts, DiskSpace

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating.md"
FOLDERS = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli")
WRITTEN = {"info", "warning", "error", "exception", "warn_limited"}
"""The methods of a `Logger`, and of a `LimitedLog`, whose events an operator sees by default."""
PASSES_ON = "runtime/limited_log.py"
"""Writes the events of its callers."""
METRICS = "runtime/metrics.py"
"""Adds the numbers of every store under several names."""
SUFFIXES = {"watch": "", "watch_labelled": "", "watch_count": "_total", "count": "_total"}
"""The ends of the names of metrics, by the method of `Metrics` that adds them, or its name in a function."""
WATCH_ARGUMENTS = 3
"""The number of arguments of `Metrics.watch`; the `watch` of the metadata takes two."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """(path, source) of each module of the product."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


class NoStore:
    """An environment and a disk without content."""

    counts = CommitCounts()

    def file_bytes(self) -> int:
        return 0

    room_bytes = file_bytes

    def space(self, _: Path) -> DiskSpace:
        return DiskSpace(0, 0)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """(name of the function or method, call) of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, node
            elif isinstance(node.func, ast.Name):
                yield node.func.id, node


def text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def events(module: ast.Module) -> Iterator[str]:
    """The events that a module logs; if the event is a parameter, the values that callers pass."""
    for name, call in calls(module):
        if name in WRITTEN and call.args:
            event = text_of(call.args[0])
            yield from given(module, call.args[0]) if event is None else [event]


def given(module: ast.Module, parameter: ast.expr) -> list[str]:
    """The values that callers pass for this parameter of the function around it."""
    around = [node for node in ast.walk(module) if isinstance(node, Function) and parameter in ast.walk(node)]
    function = around[-1]  # the innermost
    assert isinstance(parameter, ast.Name), f"{function.name}: an event is a text"
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    found = [call.args[names.index(parameter.id)] for name, call in calls(module) if name == function.name]
    texts = [text for text in map(text_of, found) if text is not None]
    assert len(texts) == len(found) > 0, f"{function.name}: an event is a text"
    return texts


def metrics() -> set[str]:
    """The names on `/metrics`: the metrics of every node, and the watched numbers."""
    found = set()
    node = Metrics()
    for store in ("bookie", "metadata"):
        node.watch_store(store, NoStore())
    node.watch_disk(NoStore(), Path())
    node.also(CollectedTopics().families)
    for family in node.collect():
        found.add(f"{family.name}_total" if family.type == "counter" else family.name)
    for path, module in modules():
        for name, call in calls(module) if path != METRICS else ():
            if name == "watch_labelled" or (name in SUFFIXES and len(call.args) == WATCH_ARGUMENTS):
                watched = text_of(call.args[0])
                assert watched is not None, f"{path}:{call.lineno}: the name of a metric is a text"
                found.add(f"gnomon_{watched}{SUFFIXES[name]}")
    return found


def section(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2]
    return text.partition("\n## ")[0]


def first_cells(title: str) -> set[str]:
    """The names in the first cells of a section's table, except those after `…`."""
    cells = re.findall(r"^\| (`[^|…]*)", section(title), re.M)
    return set(re.findall(r"`([^`]+)`", "\n".join(cells)))


def test_the_table_of_events_names_exactly_the_events_logged_above_debug() -> None:
    written = {event for path, module in modules() if path != PASSES_ON for event in events(module)}
    assert len(written) > 40
    named = first_cells("Log events")
    assert sorted(written - named) == []
    assert sorted(named - written) == []


def test_the_table_of_metrics_names_exactly_the_metrics_that_are_served() -> None:
    served = metrics()
    assert len(served) > 30
    named = first_cells("Metrics")
    assert sorted(served - named) == []
    assert sorted(named - served) == []


def test_a_metric_that_the_page_mentions_is_served() -> None:
    spoken_of = set(re.findall(r"`(gnomon_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert sorted(spoken_of - metrics()) == []
