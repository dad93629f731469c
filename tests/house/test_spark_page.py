"""The page of Spark has each option, and its guide names the writer of its stream."""

from __future__ import annotations

import re
from pathlib import Path

from gnomon.spark.options import SOURCE_OPTIONS, SOURCE_OPTIONS_WITHOUT_EFFECT
from gnomon.spark.writing.sink_options import SINK_OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def named_in(text: str) -> set[str]:
    """The names in inline code, such as `writerTakeOver=true`, and in the programs of the guide."""
    inline = re.findall(r"`([^`\s=]+)(?:=[^`]*)?`", re.sub(r"```.*?```", "", text, flags=re.S))
    return {*inline, *re.findall(r'"([^"]+)":', text)}


def test_the_page_has_each_option_of_the_source() -> None:
    assert {*SOURCE_OPTIONS, *SOURCE_OPTIONS_WITHOUT_EFFECT} - named_in(section("Reading")) == set()


def test_the_page_has_each_option_of_the_sink() -> None:
    assert set(SINK_OPTIONS) - named_in(section("Writing")) == set()


def test_each_stream_that_the_guide_writes_has_a_named_writer() -> None:
    programs = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if ".writeStream" in code]
    assert programs
    assert [code for code in programs if '"writer": ' not in code] == []
    assert "Give a stream a `writer`" in section("Writing")
