"""Settings shared by all of the job's Kafka clients: the address, and a log file for librdkafka."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Stalled(Exception):
    """No progress for so long that further waiting is useless."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The address of the broker and the clients' log.

    While the broker is away librdkafka complains to standard error by default, across the progress bars; a logger
    writes its messages to a file instead.
    """

    bootstrap: str
    logger: logging.Logger

    @classmethod
    def make(cls, bootstrap: str, log: Path) -> ClientSettings:
        logger = logging.Logger("librdkafka")
        handler = logging.FileHandler(log, delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        return cls(bootstrap, logger)

    def having(self, **settings: Any) -> dict[str, Any]:
        """A configuration for confluent-kafka; underscores in the names are replaced by its dots."""
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": self.bootstrap, "logger": self.logger, **dotted}
