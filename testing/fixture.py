"""A fixture: processes that start with a `with` block and end with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Fixture(ABC):
    """Starts when its block is entered and closes when it is left, or when the start fails."""

    @abstractmethod
    def start(self) -> None:
        """Starts the processes that do not run, and returns once they serve."""

    @abstractmethod
    def close(self) -> None:
        """Ends the processes and removes their temporary data."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
