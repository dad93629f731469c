"""The error that refuses a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.metadata.client import InvalidRequest, MetadataFull
from gnomon.wire.kafka.errors import ErrorCode

TEXT_CHARACTERS_MAX = 1000
"""An error text may quote a client's input; Kafka's older versions have room for 32,767 bytes."""


class KafkaError(Exception):
    """A request, or one item of it, is refused: the client gets the code `code`, and a person reads `text`."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        if len(text) > TEXT_CHARACTERS_MAX:
            text = f"{text[:TEXT_CHARACTERS_MAX]}..."
        super().__init__(text)
        self.code = code
        self.text = text


@contextmanager
def metadata_refusals() -> Iterator[None]:
    """Wraps one change of the metadata: a refusal by the store becomes a KafkaError, and nothing is changed.

    A full store may have room later, so its error is retriable. A change that the store never accepts is refused for
    good.
    """
    try:
        yield
    except MetadataFull as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
    except InvalidRequest as error:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The metadata service refused the change: {error}") from None
