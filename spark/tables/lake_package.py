"""The packages of the extra `lake`, which are imported when a table needs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def lake_package(name: str) -> ModuleType:
    """The package of this name.

    Raises:
        ModuleNotFoundError: it is not installed; the text has the command that installs it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(f"needs the package {package}: pip install 'gnomon[lake]'", name=package) from None
