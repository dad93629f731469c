"""The documents agree with the code: the paths through the code, the settings, the links."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gnomon.broker.configs.broker_configs import BROKER_CONFIGS, check_broker_config
from gnomon.broker.configs.config_key import InvalidConfig
from gnomon.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))  # for `settings_page` and `steps`: test folders are no packages

from settings_page import PAGE, settings_page
from steps import SPARK_PATHS, TABLE_PATHS, steps

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ARCHITECTURE = DOCS / "ARCHITECTURE.md"
FOLDERS = ("wire", "runtime", "metadata", "bookie", "log", "client", "spark", "broker", "cli", "testing", "bench")

DECISION_WORDS_MAX = 600
ARCHITECTURE_LINES_MAX = 310


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if not (ROOT / name).is_symlink() and (ROOT / name).exists()]


def definitions(path: Path) -> set[str]:
    """Functions, classes and methods (`Class.method`) of a module."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{child.name}" for child in node.body if hasattr(child, "name")}
        if hasattr(node, "name"):
            names.add(node.name)
    return names


def pages() -> list[Path]:
    return [ROOT / name for name in tracked() if name.endswith(".md")]


def test_the_architecture_page_is_short() -> None:
    assert len((DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= ARCHITECTURE_LINES_MAX


@pytest.mark.parametrize(
    ("page", "least"), [(ARCHITECTURE, 50), (SPARK_PATHS, 30), (TABLE_PATHS, 30)], ids=["broker", "Spark", "tables"]
)
def test_every_step_of_a_path_is_a_function_of_its_file(page: Path, least: int) -> None:
    found = steps(page=page)
    assert len(found) > least
    wrong = [f"{path}: {name}" for path, name in found if name not in definitions(ROOT / path)]
    assert wrong == []


def test_the_pages_for_application_developers_explain_that_a_poll_may_return_early() -> None:
    page = (DOCS / "kafka-clients.md").read_text(encoding="utf-8")
    assert "## A poll may return early and empty" in page
    assert "fetch.max.wait.ms" in page
    for name in ("docs/getting-started.md", "README.md"):
        assert "kafka-clients.md" in (ROOT / name).read_text(encoding="utf-8")


def test_the_settings_page_equals_the_one_generated_from_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == settings_page(), "write it again: python tests/house/settings_page.py"


def test_the_settings_page_marks_exactly_the_settings_that_cannot_be_set() -> None:
    values = {name: "1" if key.default is None else key.default for name, key in BROKER_CONFIGS.items()}
    values |= dict.fromkeys(("listeners", "advertised.listeners"), "PLAINTEXT://localhost:9092")
    refused = {name for name, value in values.items() if _refusal(name, value) is not None}
    rows = re.findall(r"^\| `([^`]+)` \|.*\| cannot be set: follows from [a-z]", PAGE.read_text(encoding="utf-8"), re.M)
    assert refused == set(rows) != set()


def _refusal(name: str, text: str) -> str | None:
    try:
        check_broker_config(name, text)
    except InvalidConfig as error:
        return str(error)
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_have_existing_targets(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    wrong = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert wrong == []


def command_lines(page: Path) -> list[str]:
    """The commands that a page shows: the lines of its blocks of code, and its inline code; comments are removed."""
    text = page.read_text(encoding="utf-8")
    blocks = [code for language, code in re.findall(r"```(\w*)\n(.*?)```", text, re.S) if language in ("", "sh")]
    shown = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    shown += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))]
    return [line.partition("  #")[0] for line in shown]


def unknown_in(words: list[str]) -> list[str]:
    """The words of a `gnomon` command line that are no existing command or option."""
    command: click.Command = main
    context = click.Context(main)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    options = {name for parameter in command.get_params(context) for name in parameter.opts}
    return [word for word in words if word.startswith("--") and word not in options]


GNOMON = re.compile(r"(?:^|[|;&(]) *(?:\$ )?(?:[A-Z_]+=\S+ )*gnomon ([^|;&()<>]+)")
"""A command at the beginning of a line or after another one, up to its end."""
COMMANDS_SHOWN = {"README.md": 3, "docs/getting-started.md": 15, "docs/cli.md": 60, "docs/operating.md": 25}
"""At least so many commands are found in these pages."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_pages_exist(page: Path) -> None:
    wrong, count = [], 0
    for line in command_lines(page):
        for command in GNOMON.findall(line):
            count += 1
            wrong += [f"{line}: {word}" for word in unknown_in(command.split())]
    assert wrong == []
    assert count >= COMMANDS_SHOWN.get(str(page.relative_to(ROOT)), 0)


def test_make_targets_in_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = {name for page in pages() for name in re.findall(r"`make ([a-z]+)", page.read_text(encoding="utf-8"))}
    assert named
    assert named - targets == set()


def test_decisions_are_numbered_without_a_gap_and_short() -> None:
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    assert [path.name[:5] for path in decisions] == [f"{number:04}-" for number in range(1, len(decisions) + 1)]
    long = [path.name for path in decisions if len(path.read_text(encoding="utf-8").split()) > DECISION_WORDS_MAX]
    assert long == []


def test_every_term_of_the_glossary_is_listed_once_and_used() -> None:
    terms = re.findall(r"^\| \*\*([^*]+)\*\*", (DOCS / "GLOSSARY.md").read_text(encoding="utf-8"), re.M)
    assert len(terms) > 40
    assert sorted(set(terms)) == sorted(terms)
    sources = [ROOT / name for name in tracked() if name.startswith(FOLDERS) and name.endswith(".py")]
    text = "\n".join(path.read_text(encoding="utf-8").lower().replace("_", " ") for path in sources)
    assert [term for term in terms if term.lower() not in text] == []
