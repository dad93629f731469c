"""The places of an Iceberg catalog (`spark.pipelines.settings.catalog_places`)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.spark.pipelines.settings.catalog_places import placed_catalog

FOLDER = Path("/data/flights")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"warehouse": "w"}, {"warehouse": "file:///data/flights/w"}),
        ({"warehouse": "/other/w"}, {"warehouse": "file:///other/w"}),
        ({"uri": "sqlite:///catalog.db"}, {"uri": "sqlite:////data/flights/catalog.db"}),
        ({"uri": "sqlite:////other/catalog.db"}, {"uri": "sqlite:////other/catalog.db"}),
    ],
)
def test_relative_paths_begin_at_the_folder_of_the_file(given: dict[str, str], expected: dict[str, str]) -> None:
    """Invariant 1."""
    assert placed_catalog(given, FOLDER) == expected


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"type": "rest", "uri": "https://catalog.example", "warehouse": "s3://bucket/w"},
        {"uri": "postgresql://db/catalog"},
        {"uri": "sqlite://"},
    ],
)
def test_other_properties_are_left_as_they_are(given: dict[str, str]) -> None:
    """Invariant 1."""
    before = dict(given)
    assert placed_catalog(given, FOLDER) == before == given


@pytest.mark.parametrize("name", ["a b", "é", "50%", "a#b"])
def test_a_warehouse_whose_uri_would_escape_something_stays_a_path(name: str) -> None:
    """Invariant 2."""
    assert placed_catalog({"warehouse": f"{name}/w"}, FOLDER)["warehouse"] == f"/data/flights/{name}/w"


def test_pyiceberg_writes_into_a_folder_whose_name_has_a_space(tmp_path: Path) -> None:
    """Invariant 2."""
    catalogs = pytest.importorskip("pyiceberg.catalog", reason="pip install 'gnomon[lake]'")
    folder = tmp_path / "é and a space"
    folder.mkdir()
    given = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "w"}
    catalog = catalogs.load_catalog("x", **placed_catalog(given, folder))
    catalog.create_namespace("default")
    catalog.create_table("default.t", pa.schema([("a", pa.int64())]))
    assert list((folder / "w").rglob("*.metadata.json"))
    assert [each.name for each in tmp_path.iterdir()] == [folder.name]
