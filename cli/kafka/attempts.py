"""Several attempts of one command, such as the deletion of several topics: each has a result of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from gnomon.cli.exit import Failure, KafkaFailure
from gnomon.cli.kafka.kafka_client import answer
from gnomon.cli.output import note


class Attempt(NamedTuple):
    """One attempt, under way."""

    what: str
    """As an error names it: cannot ..."""
    outcome: Future[Any]
    done: str | Callable[[], str]
    """The line that reports its success, or finds it out."""
    unneeded: tuple[int, str] | None = None
    """Kafka's error for an attempt that there was no need for, and the line that reports it as a success."""

    def check(self) -> str:
        """Waits for the outcome, and returns the line that reports it; raises Failure if it failed."""
        try:
            answer(self.outcome, self.what)
        except KafkaFailure as failure:
            if self.unneeded is None or failure.kafka_code != self.unneeded[0]:
                raise
            return self.unneeded[1]
        return self.done if isinstance(self.done, str) else self.done()


def finish(attempts: Iterable[Attempt]) -> None:
    """Waits for the attempts; each gets its line on standard error.

    Raises:
        Failure: the last that failed; the lines of the others are written.
    """
    results = Results()
    for attempt in attempts:
        with results:
            note(attempt.check())
    results.check()


class Results:
    """Collects failures: a `with` block for each attempt, then `check`."""

    def __init__(self) -> None:
        self._failed: Failure | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Failure):
            return False
        if self._failed is not None:
            note(f"Error: {self._failed}")
        self._failed = error
        return True

    def check(self) -> None:
        """Raises the last failure, if any attempt failed; the lines of the others are written."""
        if self._failed is not None:
            raise self._failed
