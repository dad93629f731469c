"""What a request is refused with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.metadata.client import MetadataFull
from gnomon.wire.kafka.errors import ErrorCode

TEXT_CHARACTERS_MAX = 1000
"""A text may quote what a client sent; Kafka's older versions have room for 32,767 bytes."""


class KafkaError(Exception):
    """A request, or one item of it, cannot be done; `code` goes over the wire, the text to whoever reads it."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        if len(text) > TEXT_CHARACTERS_MAX:
            text = f"{text[:TEXT_CHARACTERS_MAX]}..."
        super().__init__(text)
        self.code = code
        self.text = text


@contextmanager
def refused_when_full() -> Iterator[None]:
    """Around one change of the metadata: where the store has no room, nothing was changed and the client is told so."""
    try:
        yield
    except MetadataFull as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
