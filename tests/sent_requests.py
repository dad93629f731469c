"""The kinds of requests that clients in this process send to brokers."""

from __future__ import annotations

from typing import Final

import pytest

from gnomon.client.kafka.connection import KafkaClientConnection, PendingResponse
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.schema import ProtocolMessage

_OF_GROUPS: Final = ("GROUP", "COORDINATOR", "OFFSET_COMMIT", "OFFSET_FETCH", "OFFSET_DELETE", "HEARTBEAT")
"""Parts of the names of requests to groups and their coordinators."""


class SentRequests:
    """The requests that are sent from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: set[ApiKey] = set()
        send = KafkaClientConnection.send

        def noted(connection: KafkaClientConnection, message: ProtocolMessage, version: int) -> PendingResponse:
            pending = send(connection, message, version)
            self.keys.add(pending.key)
            return pending

        monkeypatch.setattr(KafkaClientConnection, "send", noted)

    @property
    def of_groups(self) -> set[ApiKey]:
        """Those of groups."""
        return {key for key in self.keys if any(word in key.name for word in _OF_GROUPS)}
