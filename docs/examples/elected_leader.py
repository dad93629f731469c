"""Leader election by a fencing token: only the process that fenced last can write.

A candidate reads the whole log, then fences it on the condition that nothing was added. From the answer on no record of
an earlier leader is acknowledged, so the new leader knows every record before its own.
"""

from __future__ import annotations

import secrets

import gnomon


class Deposed(Exception):
    """Another process leads."""


class ElectedLeader:
    """One term of leadership."""

    def __init__(self, client: gnomon.BlockingClient, topic: str, name: str) -> None:
        """Becomes the leader.

        Args:
            name: of the subscription by which this process reads the log.
        """
        self._client = client
        self._topic = topic
        self._token = secrets.token_bytes(16)
        self.log: list[bytes] = []
        """The values of all records before this term."""
        consumer = client.subscribe(topic, name, initial_position="earliest")
        consumer.seek("earliest")
        while True:
            end = client.end(topic)
            while len(self.log) <= (-1 if end.sn.sequence_id is None else end.sn.sequence_id):
                message = consumer.receive()
                assert message is not None, "the log has this record"
                self.log.append(message.value or b"")
            try:
                client.fence(topic, 0, self._token, expected=end.sn)
                break
            except gnomon.CasWriteException:
                continue  # the present leader has written: read that first
        consumer.close()

    def write(self, value: bytes) -> gnomon.SN:
        """Writes a record, as long as this process leads.

        Raises:
            Deposed: another process leads by now; nothing was written.
        """
        try:
            return self._client.write(self._topic, value, token=self._token)
        except gnomon.TokenMismatch as error:
            raise Deposed("another process has fenced the topic") from error
