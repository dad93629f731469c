"""Program: a Spark session that runs the jobs that the bench asks for, one after the other.

A question is a line of JSON with the name of a function of `jobs` and its arguments. The answer has its figures, or the
error under `error`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from typing import Any

from bench.child import heard, say
from bench.workspace import SOURCES

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.driver.memory": "2g",
}
ERROR_CHARACTERS = 300


def main() -> None:
    task = json.loads(sys.argv[1])
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM and its workers print where the log is, and not among the answers
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        PYTHONPATH=os.pathsep.join(filter(None, [str(SOURCES.parent), os.environ.get("PYTHONPATH")])),
    )
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")  # which is not used
    from bench.spark import jobs

    session = jobs.started({**CONFIGURATION, **task["configuration"]})
    say({"version": session.version})
    while True:
        question: dict[str, Any] = heard(sys.stdin.readline())
        try:
            answer = getattr(jobs, question.pop("job"))(session, **question)
        except Exception as error:
            print(error, file=sys.stderr)
            answer = {"error": shortened(f"{type(error).__name__}: {error}")}
        say(answer)


def shortened(text: str) -> str:
    """The beginning of an error, and the error of a Python worker in it: between them is a trace of calls."""
    if len(text) <= ERROR_CHARACTERS:
        return text
    causes = [line for line in text.splitlines() if re.match(r"(\w+\.)+\w+: |\w+(Error|Exception): ", line)]
    return " … ".join([text[:ERROR_CHARACTERS], *(cause[:ERROR_CHARACTERS] for cause in causes[-1:])])


if __name__ == "__main__":
    main()
