"""The places that the properties of an Iceberg catalog name. Pure.

1. A warehouse and a file of SQLite may be given as paths that begin at the folder of the pipeline's file, like all
   paths there. Anything else is left as it is.
2. A warehouse becomes a URI, so that programs with another default file system find it. A path with characters that a
   URI escapes stays a path: pyiceberg takes escapes literally, and would write beside the folder.
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
        path = folder.absolute() / warehouse
        placed["warehouse"] = path.as_uri() if path.as_uri() == f"file://{path}" else str(path)
    if uri.startswith(_SQLITE):
        placed["uri"] = f"{_SQLITE}{folder.absolute() / uri.removeprefix(_SQLITE)}"
    return placed
