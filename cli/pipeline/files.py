"""The reports of pipelines from files to a topic, as the commands show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.spark.pipelines.files.file_pipeline import FileCheck, FilePipeline, FileStatus

_FILES = 100
"""The files that a report names."""


def checked(pipeline: FilePipeline, found: FileCheck) -> dict[str, Any]:
    """The report of a dry run."""
    return {
        "pipeline": pipeline.settings.name,
        "topic": pipeline.settings.target.topic,
        **_waiting(found.status),
        "first_rows": [row._asdict() for row in found.rows],
    }


def state(pipeline: FilePipeline, found: FileStatus) -> dict[str, Any]:
    """The state of a pipeline."""
    return {
        "pipeline": pipeline.settings.name,
        "topic": pipeline.settings.target.topic,
        "query": found.query,
        "resets": found.generation,
        "last_batch": found.batch,
        "batch_in_topic": found.topic_batch,
        **_waiting(found),
    }


def _waiting(found: FileStatus) -> dict[str, Any]:
    return {
        "files_to_read": len(found.waiting),
        "bytes_to_read": sum(each.bytes for each in found.waiting),
        "first_files": [{"file": each.name, "bytes": each.bytes} for each in found.waiting[:_FILES]],
    }
