"""Files that outlive a power loss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnomon.spark.tables.local_folder import create_whole, local_folder, make_folder, milliseconds_now
from gnomon.spark.tables.table import BadTable


def test_a_location_is_a_path_or_a_uri_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_folder("a/../b") == tmp_path / "b"
    assert local_folder("/data/x%20y") == Path("/data/x%20y")
    for uri in ("file:///data/x%20y", "file:/data/x%20y", "file://localhost/data/x%20y"):
        assert local_folder(uri) == Path("/data/x y")
    for elsewhere in ("s3://b/k", "abfss://c@a/x", "dbfs://x"):
        with pytest.raises(BadTable, match="is no local folder"):
            local_folder(elsewhere)


def test_a_file_is_created_once_and_whole(tmp_path: Path) -> None:
    assert create_whole(tmp_path / "a", b"first")
    assert not create_whole(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


def test_new_folders_are_synced_in_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.readlink(f"/proc/self/fd/{opened}")))
    make_folder(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_the_time_of_a_folder_is_that_of_its_new_files(tmp_path: Path) -> None:
    before = milliseconds_now(tmp_path)
    (tmp_path / "a").touch()
    assert before <= (tmp_path / "a").stat().st_mtime_ns // 1_000_000 <= milliseconds_now(tmp_path)
    assert os.listdir(tmp_path) == ["a"]
