"""What all the job's Kafka clients share: the address, and a place for librdkafka's words."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Stalled(Exception):
    """Nothing went forward for so long that waiting further makes no sense."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the broker is and where clients write their log.

    While the broker is away librdkafka complains to standard error by default, across the progress bars; a logger
    takes its words to a file instead.
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
        """A configuration for confluent-kafka; underscores in the names stand for its dots."""
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": self.bootstrap, "logger": self.logger, **dotted}
