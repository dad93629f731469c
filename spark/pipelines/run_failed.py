"""The errors of gnomon that Spark reports from its other processes, as texts."""

from __future__ import annotations

import re
from typing import Final

from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.tasks.letters import RecordsRefused

_CONCURRENT: Final = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")


class RunFailed(Exception):
    """The driver or a task could not go on, for a reason that gnomon knows; the text has it."""


def own_error(error: Exception) -> Exception | None:
    """The error of gnomon that Spark reports as a text with the stack of a worker; None if there is none.

    Two drivers of one checkpoint are noticed by Spark's log of offsets, too.
    """
    if any(text in str(error) for text in _CONCURRENT):
        return PipelineFenced("ALREADY: another driver runs on this checkpoint, and was faster: run one at a time")
    found = re.search(r"^gnomon\.[\w.]*\.(\w+): (.*)$", str(error), re.MULTILINE)
    if found is None:
        return None
    if found[1] == RecordsRefused.__name__:
        return RecordsRefused(f"{found[2]} (errors.on_error decides)")
    return RunFailed(found[2])
