"""The file of a pipeline."""

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
