"""Log lines about requests for features that are not built: one for each client and reason.

Most responses have no field for a text, and most clients show none, so the operator finds the reason in this line.

1. A line names the client by its id, its software (if the client sent it), and its address without the port: a client
   that connects again counts as the same one.
2. At most LINES_MAX lines of one address and reason are written in a second, and the number of further ones
   (`limited_log`). A refusal without a line is not remembered: the client's next one may get it.
3. At most CLIENTS_MAX pairs of client and reason are remembered, with at most TEXT_CHARACTERS_MAX characters of each
   text. Beyond that, the pair that was refused longest ago is forgotten, and its next refusal is logged again.
"""

from __future__ import annotations

from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.runtime.limited_log import LimitedLog

CLIENTS_MAX = 1000
TEXT_CHARACTERS_MAX = 100
"""Clients choose their ids and the names of their software, of any length."""

TRANSACTIONS = "transactions are not built yet: unset transactional.id"
CONSUMER_GROUPS = "the new consumer group protocol (KIP-848) is not built yet: set group.protocol=classic"
SHARE_GROUPS = "share groups are not built yet: use a consumer group with group.protocol=classic"
SASL = "SASL is not built yet: set security.protocol=PLAINTEXT"
ACLS = "ACLs are not built yet: every client that reaches the port may read and write"


class RefusalLog:
    """Logs the first refusal of each client for each reason."""

    def __init__(self, log: LimitedLog) -> None:
        self._log = log
        self._logged: dict[tuple[str, str, str, str], None] = {}
        """The remembered refusals, from the oldest to the latest."""

    def refused(self, exchange: Exchange, reason: str) -> None:
        """Logs that the client of this exchange is refused for `reason`, unless that is logged already."""
        client = (exchange.client_id or "")[:TEXT_CHARACTERS_MAX]
        software = exchange.connection.software
        address = exchange.connection.transport.peer.rpartition(":")[0]
        refusal = client, software, address, reason
        if refusal in self._logged:
            del self._logged[refusal]  # becomes the latest
        else:
            fields = {"client": client, "software": software, "address": address, "reason": reason}
            if not self._log.warn_limited("not_built", f"{address} {reason}", **fields):
                return
        self._logged[refusal] = None
        if len(self._logged) > CLIENTS_MAX:
            del self._logged[next(iter(self._logged))]
