"""The client for whose request a batch is unpacked. Pure.

1. Bytes are charged before they are made, and given back once.
"""

from __future__ import annotations

from typing import Protocol


class BatchClient(Protocol):
    """The client for whose request a batch is unpacked."""

    @property
    def turn_key(self) -> object:
        """The same for all requests of one client."""

    @property
    def gone(self) -> bool:
        """Whether nobody wants the result any more."""

    def charge(self, count: int) -> None:
        """`count` bytes will be made."""

    def refund(self, count: int) -> None:
        """`count` bytes that were charged are free again."""


class BrokerItself:
    """The client of batches that no connection of Kafka's protocol asks for; all of them take turns as one."""

    turn_key: object = None
    gone = False

    def charge(self, count: int) -> None:
        """Counts nothing: one batch at a time has such memory (1)."""

    def refund(self, count: int) -> None:
        """See `charge`."""


BROKER_ITSELF = BrokerItself()
