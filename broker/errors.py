"""What a request is refused with."""

from __future__ import annotations

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
