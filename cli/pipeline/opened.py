"""Opens the pipeline of a file for a command, with its errors in one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.exit import Exit, Failure

if TYPE_CHECKING:
    from gnomon.spark.pipelines.files.file_pipeline import FilePipeline
    from gnomon.spark.pipelines.pipeline import Pipeline


def file_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument FILE."""
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.argument("file", type=kind)(command)


@contextmanager
def opened(file: Path) -> Iterator[Pipeline | FilePipeline]:
    """The pipeline of a file.

    Raises:
        Failure: the file, the table or the topics cannot be used, or a package is missing.
    """
    try:
        from gnomon.client.kafka.errors import RequestRefused
        from gnomon.spark.columns import UnreadableBatch
        from gnomon.spark.formats.decoder import BadFormat
        from gnomon.spark.formats.schema_registry import UnusableRegistry
        from gnomon.spark.offsets import BadOption
        from gnomon.spark.pipelines.batch_commit import PipelineFenced
        from gnomon.spark.pipelines.files.file_pipeline import FilePipeline
        from gnomon.spark.pipelines.pipeline import Pipeline
        from gnomon.spark.pipelines.pipeline_file import read_pipeline_file
        from gnomon.spark.pipelines.replays.range_replay import ReplayRefused
        from gnomon.spark.pipelines.run_failed import RunFailed
        from gnomon.spark.pipelines.settings.file_settings import is_of_files
        from gnomon.spark.pipelines.settings.section import BadPipeline
        from gnomon.spark.pipelines.tasks.letters import RecordsRefused
        from gnomon.spark.planning import DataLost
        from gnomon.spark.row_count import WrongRowCount
        from gnomon.spark.tables.table import BadTable, TableBusy
        from gnomon.spark.writing.delivery import DeliveryFailed

        try:
            given = read_pipeline_file(file)
            yield (FilePipeline if is_of_files(given) else Pipeline).of(given, file.parent)
        except (BadPipeline, BadOption, BadFormat) as error:
            raise Failure(f"{file}: {error}", Exit.USAGE) from None
        except PipelineFenced as error:
            raise Failure(str(error), Exit.CONFLICT) from None
        except (
            RecordsRefused,
            ReplayRefused,
            RunFailed,
            BadTable,
            TableBusy,
            DataLost,
            DeliveryFailed,
            RequestRefused,
            UnreadableBatch,
            UnusableRegistry,
            WrongRowCount,
        ) as error:
            raise Failure(str(error)) from None
    except ModuleNotFoundError as error:
        raise Failure(
            f"pipelines need the package {error.name}, which is not installed: pip install 'gnomon[lake]'"
        ) from None
