"""The present files of a pattern (`spark.pipelines.files.listing`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.spark.pipelines.files.listing import changed_of, listed
from gnomon.spark.pipelines.settings.section import BadPipeline


def names(pattern: str, folder: Path) -> list[str]:
    return sorted(each.name for each in listed(pattern, folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("in/a.json", "in/b.csv", "in/.c.json", "in/_d.json", "in/x/e.json", "in/_t/f.json", "_g/h.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "in/folder.json").mkdir()
    return tmp_path


def test_hidden_files_and_hidden_folders_that_wildcards_find_are_not_listed(folder: Path) -> None:
    assert names("in/*.json", folder) == ["in/a.json"]
    assert names("in/**/*.json", folder) == ["in/a.json", "in/x/e.json"]
    assert names("_g/*.json", folder) == ["_g/h.json"]


def test_names_are_as_the_pattern_has_them(folder: Path) -> None:
    assert names("../*/in/a.json", folder / "in") == []
    assert names("../in/a*", folder / "in") == ["../in/a.json"]
    assert names(str(folder / "in" / "a*"), Path("/")) == [str(folder / "in" / "a.json")]


def test_a_file_with_another_size_or_time_and_a_missing_one_have_changed(folder: Path) -> None:
    (file,) = listed("in/*.json", folder)
    assert changed_of([file], folder) is None
    assert changed_of([file._replace(modified_ns=1)], folder) == file._replace(modified_ns=1)
    (folder / "in/a.json").unlink()
    assert changed_of([file], folder) == file


def test_a_missing_folder_is_an_error_that_names_it(folder: Path) -> None:
    with pytest.raises(BadPipeline, match="nowhere is no folder"):
        names("nowhere/*.json", folder)
