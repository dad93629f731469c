"""Groups and their offsets: passes every request to the coordinator. The guards have turned topic ids into names."""

from __future__ import annotations

from gnomon.broker.groups.coordinator import GroupCoordinator
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest

GROUPS_MAX = 5_000
"""Groups of one OffsetFetch."""


class GroupHandlers:
    """Passes the group requests of one broker to its coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        plain = (
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_DELETE,
        )
        return {**dict.fromkeys(plain, self.handle), ApiKey.OFFSET_FETCH: self.fetch}

    def handle(self, request: Request) -> None:
        """Passes a request to the coordinator unchanged."""
        self._coordinator.handle(
            request.message, request.version, request.client_id, request.client_host, request.reply
        )

    def fetch(self, request: Request) -> None:
        """OffsetFetch, which may name fewer groups than partitions."""
        message: OffsetFetchRequest = request.message
        if len(message.groups) > GROUPS_MAX:
            reason = f"{len(message.groups)} groups in one request: at most {GROUPS_MAX}, ask for fewer"
            request.exchange.connection.refuse(reason)
            return
        self.handle(request)
