"""The files that a pipeline is described by: its own, and that of a schema."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gnomon.spark.pipelines.settings.section import BadPipeline


def read_pipeline_file(path: Path) -> dict[str, Any]:
    """The content of a file.

    Raises:
        BadPipeline: it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadPipeline(f"{path}: cannot be read: {error}") from error


def read_schema_file(path: Path) -> str:
    """The text of a schema (`format.schema_file`).

    Raises:
        BadPipeline: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadPipeline(f"format.schema_file: {path} cannot be read: {error}") from error
