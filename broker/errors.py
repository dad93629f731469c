"""What a request is refused with."""

from __future__ import annotations

from gnomon.wire.kafka.errors import ErrorCode


class KafkaError(Exception):
    """A request, or one item of it, cannot be done; `code` goes over the wire, the text to whoever reads it."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
