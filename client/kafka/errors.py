"""Errors of a client that speaks Kafka's protocol."""

from __future__ import annotations

from gnomon.wire.kafka.errors import ErrorCode


class RequestRefused(Exception):
    """A broker refused a request.

    Attributes:
        code: Kafka's error.
    """

    def __init__(self, code: ErrorCode, subject: str, text: str | None = None) -> None:
        """`subject` is the object of the request, such as a partition; `text` is the broker's, if it gave one."""
        super().__init__(f"{subject}: {text or code.text} ({code.name})")
        self.code = code


def check(error_code: int, subject: str, text: str | None = None) -> None:
    """Raises the RequestRefused of an answer, unless its code is 0."""
    if error_code:
        try:
            code = ErrorCode(error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            text = f"error {error_code}, which this client does not know: {text or 'without a text'}"
        raise RequestRefused(code, subject, text)
