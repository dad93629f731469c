"""The coordination runtime knows none of its tenants: it mentions neither groups nor Kafka."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import_graph`: test folders are no packages

from import_graph import ROOT, imports

RUNTIME = sorted((ROOT / "broker" / "coordination").glob("*.py"))
ALLOWED = ("gnomon.broker.coordination.", "gnomon.runtime.")
WORDS = re.compile(r"\b(groups?|members?|(commit|committed) offsets?|offset commits?|kafkas?)\b")


def words_of_tenants(source: str) -> list[str]:
    """The words of tenants in identifiers, texts and comments."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", source)
    return [found.group() for found in WORDS.finditer(re.sub(r"[\W_]+", " ", apart).lower())]


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.name)
def test_the_runtime_imports_neither_tenants_nor_the_broker(path: Path) -> None:
    ours = [name for name in imports(path) if name.startswith("gnomon.")]
    assert [name for name in ours if not name.startswith(ALLOWED)] == []


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.name)
def test_the_runtime_has_no_word_of_its_tenants(path: Path) -> None:
    assert words_of_tenants(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    ["class GroupShard:", "member_id: str", "# an offset commit", '"""Kafka\'s."""', "def commit_offset(self):"],
)
def test_a_planted_word_is_found(planted: str) -> None:
    assert len(words_of_tenants(planted)) == 1


def test_words_that_only_contain_a_word_of_tenants_are_not_found() -> None:
    assert words_of_tenants("def remember(self, grouped, base_offset):  # the commit of a batch") == []
