"""The errors of Spark's jobs over files, as texts that name the file."""

from __future__ import annotations

import re
from typing import Final

from gnomon.spark.pipelines.run_failed import RunFailed, own_error

_FILE: Final = re.compile(r"reading file (.+?)\.(?:\s|$)")
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_STATE: Final = re.compile(r"\.? SQLSTATE: \w+.*$")


def read_failure(error: Exception) -> Exception:
    """The error of gnomon that Spark reports, or the failure with the file and the last cause."""
    own = own_error(error)
    if own is not None:
        return own
    text = str(error)
    file, causes = _FILE.search(text), _CAUSE.findall(text)
    reason = causes[-1] if causes else first_line(error)
    return RunFailed(_STATE.sub("", f"{file[1]}: {reason}" if file else reason))


def first_line(error: Exception) -> str:
    """The first line of a text of Spark's that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
