"""The places that the properties of an Iceberg catalog name. Pure.

A warehouse and a file of SQLite may be given as paths that begin at the folder of the pipeline's file, like all paths
there. Anything else is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SQLITE: Final = "sqlite:///"


def placed_catalog(catalog: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The properties with absolute places.

    Args:
        folder: relative paths begin there.
    """
    placed = dict(catalog)
    warehouse, uri = catalog.get("warehouse"), catalog.get("uri", "")
    if warehouse is not None and "://" not in warehouse:
        placed["warehouse"] = (folder.absolute() / warehouse).as_uri()
    if uri.startswith(_SQLITE):
        placed["uri"] = f"{_SQLITE}{folder.absolute() / uri.removeprefix(_SQLITE)}"
    return placed
